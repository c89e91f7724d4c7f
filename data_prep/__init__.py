"""Raw image collections -> LMDB: `python -m data_prep --help`."""
