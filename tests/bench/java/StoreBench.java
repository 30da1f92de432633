import com.sun.management.OperatingSystemMXBean;
import java.io.File;
import java.lang.management.ManagementFactory;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.CommitLog;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.RocksDBMessageStore;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Drives a DefaultMessageStore of 5.x in this process. Every result is one line "R key=value ...".
 * Usage: StoreBench MODE name=value...
 *
 * gen   root= body= gib=       a store of exactly that many commit log files, or of a smaller one, bodies 0.5 .. 1.5 of the mean
 * rate  root= body= secs= rounds= flush=   acknowledged messages a second, and dispatched ones, by one thread;
 *                                   CPU of the whole process for one, dispatch and flush included
 * load  root=                  until the store has loaded and recovered
 * rebuild root= type=          until a store without queues and index has both; type=defaultRocksDB: queues in a RocksDB, no index
 * check root=                  until the broker's own check has seen every record of the log, bodies' CRC included
 * one   root=                  one message, synchronous flush, from the start of the process (start= is its time)
 */
public final class StoreBench {
    private static final long GIB = 1L << 30;
    private static final int BODIES = 4096;
    private static final InetSocketAddress BORN = new InetSocketAddress(address(10, 0, 0, 1), 40000);
    private static final InetSocketAddress STORE = new InetSocketAddress(address(10, 0, 0, 2), 10911);
    private static final String[] TAGS = {"TagA", "TagBB", "TagCCC", "TagDDDD", "TagE"};
    private static final Map<String, String> OPTIONS = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        for (String argument : Arrays.copyOfRange(arguments, 1, arguments.length)) {
            String[] pair = argument.split("=", 2);
            OPTIONS.put(pair[0], pair[1]);
        }
        switch (arguments[0]) {
            case "gen": generate(); break;
            case "rate": rate(); break;
            case "one": one(); break;
            case "load": load(); break;
            case "rebuild": rebuild(); break;
            case "check": check(); break;
            default: throw new IllegalArgumentException(arguments[0]);
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    /** CPU seconds of this process so far. */
    private static double cpu() {
        OperatingSystemMXBean process = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return process.getProcessCpuTime() / 1e9;
    }

    private static double number(String name) {
        return Double.parseDouble(OPTIONS.get(name));
    }

    private static long fileBytes() {
        return OPTIONS.containsKey("gib") ? (long) Math.min(GIB, number("gib") * GIB) : GIB;
    }

    private static DefaultMessageStore open(FlushDiskType flush) throws Exception {
        DefaultMessageStore store = unloaded(flush);
        store.load();
        store.start();
        return store;
    }

    private static DefaultMessageStore unloaded(FlushDiskType flush) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(OPTIONS.get("root"));
        config.setStorePathCommitLog(OPTIONS.get("root") + "/commitlog");
        config.setMappedFileSizeCommitLog((int) fileBytes());
        config.setHaListenPort(0);
        config.setFlushDiskType(flush);
        BrokerStatsManager stats = new BrokerStatsManager("bench", true);
        if (OPTIONS.containsKey("type")) {
            config.setStoreType(OPTIONS.get("type"));
            config.setMessageIndexEnable(false);
            return new RocksDBMessageStore(config, stats, null, new BrokerConfig(), new ConcurrentHashMap<>());
        }
        return new DefaultMessageStore(config, stats, null, new BrokerConfig(), new ConcurrentHashMap<>());
    }

    /** The seconds since the process was asked for, when the store has loaded and recovered. */
    private static void load() throws Exception {
        boolean loaded = unloaded(FlushDiskType.ASYNC_FLUSH).load();
        System.out.printf("R loaded_s=%.4f cpu_s=%.4f ok=%b%n", sinceStart(), cpu(), loaded);
    }

    /** The same, when a store without queues and index has made both from its log. */
    private static void rebuild() throws Exception {
        DefaultMessageStore store = open(FlushDiskType.ASYNC_FLUSH);
        while (store.dispatchBehindBytes() > 0) Thread.sleep(1);
        System.out.printf("R rebuilt_s=%.4f cpu_s=%.4f%n", sinceStart(), cpu());
    }

    /** The same, when CommitLog has checked every record of the log, of a store that is not loaded. */
    private static void check() throws Exception {
        CommitLog log = new CommitLog(unloaded(FlushDiskType.ASYNC_FLUSH));
        File[] files = new File(OPTIONS.get("root"), "commitlog").listFiles();
        Arrays.sort(files);
        long records = 0;
        for (File file : files) {
            try (FileChannel channel = FileChannel.open(file.toPath(), StandardOpenOption.READ)) {
                ByteBuffer buffer = channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size());
                DispatchRequest found = log.checkMessageAndReturnSize(buffer, true, false);
                for (; found.isSuccess() && found.getMsgSize() > 0; records++) {
                    found = log.checkMessageAndReturnSize(buffer, true, false);
                }
            }
        }
        System.out.printf("R checked_s=%.4f cpu_s=%.4f records=%d%n", sinceStart(), cpu(), records);
    }

    private static double sinceStart() {
        java.time.Instant now = java.time.Instant.now();
        return now.getEpochSecond() + now.getNano() / 1e9 - number("start");
    }

    private static InetAddress address(int a, int b, int c, int d) {
        try {
            return InetAddress.getByAddress(new byte[] {(byte) a, (byte) b, (byte) c, (byte) d});
        } catch (java.net.UnknownHostException e) {
            throw new IllegalStateException(e);
        }
    }

    /** Random printable bodies, used in turn: of one size, or of 0.5 .. 1.5 of the mean. */
    private static byte[][] bodies(int mean, boolean vary) {
        Random random = new Random(mean);
        byte[][] all = new byte[BODIES][];
        for (int i = 0; i < all.length; i++) {
            all[i] = new byte[vary ? mean / 2 + random.nextInt(mean + 1) : mean];
            for (int j = 0; j < all[i].length; j++) all[i][j] = (byte) (' ' + random.nextInt(95));
        }
        return all;
    }

    private static String digits(long number, int radix) {
        String text = Long.toString(number, radix).toUpperCase();
        return "000000000000".substring(text.length()) + text;
    }

    /** A message as a real producer sends it: a key, a unique key, a tag. */
    private static MessageExtBrokerInner message(String topic, int queue, byte[] body, long id) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(topic);
        message.setQueueId(queue);
        message.setBody(body);
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(BORN);
        message.setStoreHost(STORE);
        Map<String, String> properties = new HashMap<>(8);
        properties.put("KEYS", "order-" + digits(id, 10));
        properties.put("UNIQ_KEY", "7F0000010A2C18B4AAC2" + digits(id, 16));
        properties.put("TAGS", TAGS[(int) (id % TAGS.length)]);
        properties.put("WAIT", "true");
        properties.put("CLUSTER", "DefaultCluster");
        MessageAccessor.setProperties(message, properties);
        StringBuilder text = new StringBuilder();
        for (String name : new String[] {"KEYS", "UNIQ_KEY", "TAGS", "WAIT", "CLUSTER"})
            text.append(name).append('\u0001').append(properties.get(name)).append('\u0002');
        message.setPropertiesString(text.toString());
        return message;
    }

    private static String topic(int number) {
        return String.format(number % 2 == 1 ? "topic_%04d_orders" : "T%03d", number);
    }

    private static void generate() throws Exception {
        DefaultMessageStore store = open(FlushDiskType.ASYNC_FLUSH);
        byte[][] bodies = bodies((int) number("body"), true);
        Random random = new Random(7);
        long limit = (long) (number("gib") * GIB), file = fileBytes(), end = 0, count = 0;
        while (true) {
            MessageExtBrokerInner m = message(topic(random.nextInt(100)), random.nextInt(4), bodies[(int) (count % BODIES)], count);
            int size = 91 + m.getBody().length + m.getTopic().length() + m.getPropertiesString().length();
            long room = file - end % file;
            if (size + 8 > room && end + room >= limit) break;
            end = put(store, m);
            count++;
        }
        while (store.dispatchBehindBytes() > 0) Thread.sleep(1);
        store.shutdown();
        System.out.printf("R messages=%d bytes=%d%n", count, end);
    }

    /** The position behind the record. A busy store is asked again, as a producer does. */
    private static long put(DefaultMessageStore store, MessageExtBrokerInner message) throws Exception {
        while (true) {
            PutMessageResult result = store.putMessage(message);
            if (result.isOk())
                return result.getAppendMessageResult().getWroteOffset() + result.getAppendMessageResult().getWroteBytes();
            Thread.sleep(1);
        }
    }

    private static void rate() throws Exception {
        boolean sync = "sync".equals(OPTIONS.get("flush"));
        DefaultMessageStore store = open(sync ? FlushDiskType.SYNC_FLUSH : FlushDiskType.ASYNC_FLUSH);
        byte[][] bodies = bodies((int) number("body"), false);
        long id = 0;
        for (int round = -3; round < number("rounds"); round++) {
            long start = System.nanoTime(), end = start + (long) (number("secs") * 1e9), count = 0;
            double before = cpu();
            for (; System.nanoTime() < end; count++, id++)
                put(store, message("BenchTopic", 0, bodies[(int) (id % BODIES)], id));
            double seconds = (System.nanoTime() - start) / 1e9;
            while (store.dispatchBehindBytes() > 0) Thread.sleep(1);
            double dispatched = (System.nanoTime() - start) / 1e9, cpu = (cpu() - before) / count;
            if (round >= 0)
                System.out.printf("R acknowledged_per_s=%.0f dispatched_per_s=%.0f cpu_s=%.9f%n", count / seconds, count / dispatched, cpu);
            store.getCommitLog().deleteExpiredFile(0, 0, 0, true);
        }
    }

    private static void one() throws Exception {
        DefaultMessageStore store = open(FlushDiskType.SYNC_FLUSH);
        PutMessageResult result = store.putMessage(message("BenchTopic", 0, bodies(1000, false)[0], 1));
        System.out.printf("R acknowledged_s=%.4f cpu_s=%.4f ok=%b%n", sinceStart(), cpu(), result.isOk());
    }
}
