"""The message store of a broker: read it, check it, repair it and write it. No terminal, no Spark.

Its packages are layered (ARCHITECTURE.md); each uses only those in the layers below. It may use `formats`.
"""
