"""Control of client drift in federated learning, on TensorFlow Federated."""
