"""Images for training: LMDB sets, built-in pictures, task sequences, class splits, batches."""
