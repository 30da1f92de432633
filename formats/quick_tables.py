"""Written by man/generate.py from the schemas; read by `quick`. Not to be edited."""

# fmt: off
# ruff: noqa
UNIT_BYTES = 20
PRE_FILL = (0, 2147483647, 0)
EXT_ADDRESS_MAX = -2147483649
MAGICS = (3668123815, 3668123819)
SMALLEST = 91
IPV4_BYTES = 4
IPV6_BYTES = 16
OFFSET_BYTES = 8
UNIT = (
    ('fields', '>qiq', ('physical_offset', 'size', 'tags_code')),
)
MESSAGE = (
    ('fields', '>iIiiiqqiq', ('total_size', 'magic_code', 'body_crc', 'queue_id', 'flag', 'queue_offset', 'physical_offset', 'sys_flag', 'born_timestamp')),
    ('if', 'sys_flag', '&', 16, (('fields', '>16si', ('born_host.ip', 'born_host.port')),), (('fields', '>4si', ('born_host.ip', 'born_host.port')),)),
    ('fields', '>q', ('store_timestamp',)),
    ('if', 'sys_flag', '&', 32, (('fields', '>16si', ('store_host.ip', 'store_host.port')),), (('fields', '>4si', ('store_host.ip', 'store_host.port')),)),
    ('fields', '>iqi', ('reconsume_times', 'prepared_transaction_offset', 'body_length')),
    ('bytes', 'body', 'body_length'),
    ('if', 'magic_code', '==', 3668123819, (('fields', '>h', ('topic_length',)),), (('fields', '>b', ('topic_length',)),)),
    ('bytes', 'topic', 'topic_length'),
    ('fields', '>h', ('properties_length',)),
    ('bytes', 'properties', 'properties_length'),
)
MESSAGE_ID_V4 = (
    ('fields', '>4siq', ('ip', 'port', 'physical_offset')),
)
MESSAGE_ID_V6 = (
    ('fields', '>16siq', ('ip', 'port', 'physical_offset')),
)
