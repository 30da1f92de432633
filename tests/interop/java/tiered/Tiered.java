package tiered;

import java.io.File;
import java.nio.ByteBuffer;
import java.nio.file.*;
import java.util.*;
import org.apache.rocketmq.common.TopicFilterType;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.tieredstore.*;
import org.apache.rocketmq.tieredstore.file.*;
import org.apache.rocketmq.tieredstore.index.*;
import org.apache.rocketmq.tieredstore.metadata.*;

/**
 * Puts the messages of some topics of a commit log into a tiered store of the POSIX provider, with the real classes:
 * Tiered COMMITLOG-DIRECTORY ROOT TOPIC …. The segments lie below ROOT, the metadata in ROOT/config. With
 * -Dtiered.killed=true the index is not shut down: its files stay in ROOT/tiered_index_file as they were written.
 */
public final class Tiered {
    private static final int SEGMENT_BYTES = 8192;
    private static final int QUEUE_BYTES = 200;
    private static final int LARGEST_BYTES = 4096;

    public static void main(String[] args) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(args[1]);
        config.setTieredStoreFilePath(args[1] + File.separator);
        config.setBrokerName("broker-a");
        config.setBrokerClusterName("TestCluster");
        config.setTieredBackendServiceProvider("org.apache.rocketmq.tieredstore.provider.PosixFileSegment");
        config.setTieredStoreCommitLogMaxSize(SEGMENT_BYTES);
        config.setTieredStoreConsumeQueueMaxSize(QUEUE_BYTES);
        config.setTieredStoreIndexFileMaxHashSlotNum(7);
        config.setTieredStoreIndexFileMaxIndexNum(20);
        MetadataStore metadata = new DefaultMetadataStore(config);
        FlatFileFactory factory = new FlatFileFactory(metadata, config, new MessageStoreExecutor());
        IndexStoreService index = new IndexStoreService(factory, "TestCluster/broker-a/rmq_sys_INDEX/0");
        index.start();
        Map<String, FlatMessageFile> queues = new TreeMap<>();
        Set<String> wanted = new HashSet<>(Arrays.asList(args).subList(2, args.length));
        for (ByteBuffer record : records(Paths.get(args[0]))) {
            MessageExt message = MessageDecoder.decode(record.duplicate(), true, false);
            if (!wanted.contains(message.getTopic()) || record.remaining() > LARGEST_BYTES) continue;
            String name = message.getTopic() + "/" + message.getQueueId();
            FlatMessageFile queue = queues.get(name);
            if (queue == null) {
                queue = new FlatMessageFile(factory, message.getTopic(), message.getQueueId());
                queue.initOffset(message.getQueueOffset());
                queues.put(name, queue);
            }
            long position = queue.getCommitLogMaxOffset();
            queue.appendCommitLog(record.duplicate());
            long tags = MessageExtBrokerInner.tagsString2tagsCode(TopicFilterType.SINGLE_TAG, message.getTags());
            queue.appendConsumeQueue(new DispatchRequest(message.getTopic(), message.getQueueId(), position,
                record.remaining(), tags, message.getStoreTimestamp(), message.getQueueOffset(), "", "", 0, 0, null));
            queue.commitAsync().join();
            Set<String> keys = new TreeSet<>();
            if (message.getKeys() != null && !message.getKeys().trim().isEmpty())
                keys.addAll(Arrays.asList(message.getKeys().trim().split(" ")));
            int topicId = (int) metadata.getTopic(message.getTopic()).getTopicId();
            index.putKey(message.getTopic(), topicId, message.getQueueId(), keys, position, record.remaining(), message.getStoreTimestamp());
        }
        for (FlatMessageFile queue : queues.values()) {
            queue.commitAsync().join();
            queue.flushMetadata();
        }
        Thread.sleep(500);
        if (!Boolean.getBoolean("tiered.killed")) index.shutdown();
        ((DefaultMetadataStore) metadata).persist();
        Runtime.getRuntime().halt(0);
    }

    /** The records of all files, up to the first thing that is none. */
    private static List<ByteBuffer> records(Path directory) throws Exception {
        File[] files = directory.toFile().listFiles();
        Arrays.sort(files);
        List<ByteBuffer> found = new ArrayList<>();
        for (File file : files) {
            ByteBuffer data = ByteBuffer.wrap(Files.readAllBytes(file.toPath()));
            while (data.remaining() > 8) {
                int size = data.getInt(data.position());
                int magic = data.getInt(data.position() + 4);
                if (size <= 0 || magic != MessageDecoder.MESSAGE_MAGIC_CODE && magic != MessageDecoder.MESSAGE_MAGIC_CODE_V2) break;
                byte[] record = new byte[size];
                data.get(record);
                found.add(ByteBuffer.wrap(record));
            }
        }
        return found;
    }
}
