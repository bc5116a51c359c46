import sqlite3

import pytest
import tensorflow as tf


def _feature(value):
    if isinstance(value, bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
    if isinstance(value, list):
        return tf.train.Feature(float_list=tf.train.FloatList(value=value))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


def _serialize(features):
    example = tf.train.Example(
        features=tf.train.Features(
            feature={name: _feature(value) for name, value in features.items()}
        )
    )
    return example.SerializeToString()


@pytest.fixture
def write_sqlite():
    """Writes a file in TFF's format from rows of (split, client, features)."""

    def write(path, rows):
        connection = sqlite3.connect(path)
        connection.execute(
            "CREATE TABLE examples (split_name TEXT NOT NULL, client_id TEXT NOT NULL,"
            " serialized_example_proto BLOB NOT NULL)"
        )
        connection.execute(
            "CREATE TABLE client_metadata (client_id TEXT NOT NULL,"
            " split_name TEXT NOT NULL, num_examples INTEGER NOT NULL)"
        )
        connection.executemany(
            "INSERT INTO examples VALUES (?, ?, ?)",
            [(split, client, _serialize(features)) for split, client, features in rows],
        )
        connection.execute(
            "INSERT INTO client_metadata SELECT client_id, split_name, COUNT(*) "
            "FROM examples GROUP BY client_id, split_name"
        )
        connection.commit()
        connection.close()
        return path

    return write
