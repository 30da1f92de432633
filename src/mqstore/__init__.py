"""mqstore: read, check, repair and write the message store of an Apache RocketMQ broker, offline."""
