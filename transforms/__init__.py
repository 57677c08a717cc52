"""Transform spaces, one file per family of einsums; importing this package registers nothing, the registry loads it."""
