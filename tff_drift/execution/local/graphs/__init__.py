"""TFF's graphs, made fit to be called as TensorFlow functions of this process."""
