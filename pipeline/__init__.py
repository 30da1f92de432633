"""The Spark data pipeline."""
