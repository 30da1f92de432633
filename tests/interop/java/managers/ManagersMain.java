package managers;

import com.google.gson.*;
import java.io.*;
import java.lang.invoke.*;
import java.lang.reflect.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.*;
import org.apache.rocketmq.remoting.netty.*;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * The managers of a broker's configuration, one by one, on the folder config/ of a store: what load() says and what is
 * in the table then. One JSON request per line on stdin ({"store", "files": [NAME, ...], "persist": true}), one JSON
 * answer per line on stdout: NAME -> {"loaded" | "exception", "table"}. A manager that the version lacks has no answer.
 */
public final class ManagersMain {
    private static final Gson JSON = new GsonBuilder().disableHtmlEscaping().serializeNulls().create();
    /** File -> where its manager may be found; the broker, the store or the path of the file is its only argument. */
    private static final Map<String, String[]> MANAGERS = new LinkedHashMap<>();

    static {
        MANAGERS.put("topics.json", new String[] {"broker.topic.TopicConfigManager"});
        MANAGERS.put("subscriptionGroup.json", new String[] {"broker.subscription.SubscriptionGroupManager"});
        MANAGERS.put("consumerOffset.json", new String[] {"broker.offset.ConsumerOffsetManager"});
        MANAGERS.put("lmqConsumerOffset.json", new String[] {"broker.offset.LmqConsumerOffsetManager"});
        MANAGERS.put("consumerFilter.json", new String[] {"broker.filter.ConsumerFilterManager"});
        MANAGERS.put("consumerOrderInfo.json", new String[] {
            "broker.offset.MemoryConsumerOrderInfoManager", "broker.pop.orderly.QueueLevelConsumerManager",
            "broker.offset.ConsumerOrderInfoManager"});
        MANAGERS.put("topicQueueMapping.json", new String[] {"broker.topic.TopicQueueMappingManager"});
        MANAGERS.put("messageRequestMode.json", new String[] {"broker.loadbalance.MessageRequestModeManager"});
        MANAGERS.put("delayOffset.json", new String[] {
            "broker.schedule.ScheduleMessageService", "store.schedule.ScheduleMessageService"});
        MANAGERS.put("timermetrics", new String[] {"store.timer.TimerMetrics"});
        MANAGERS.put("transactionMetrics", new String[] {"broker.transaction.TransactionMetrics"});
        MANAGERS.put("timercheck", new String[] {"store.timer.TimerCheckpoint"});
        MANAGERS.put("topics/", new String[] {"broker.config.v1.RocksDBTopicConfigManager"});
        MANAGERS.put("subscriptionGroups/", new String[] {"broker.config.v1.RocksDBSubscriptionGroupManager"});
        MANAGERS.put("consumerOffsets/", new String[] {"broker.config.v1.RocksDBConsumerOffsetManager"});
    }

    private final MessageStoreConfig store = new MessageStoreConfig();
    private final BrokerController broker;
    private final Object messages;

    private ManagersMain() throws Exception {
        Path home = Files.createTempDirectory("managers");
        store.setStorePathRootDir(home.toString());
        store.setStorePathCommitLog(home + "/commitlog");
        BrokerConfig config = new BrokerConfig();
        NettyServerConfig server = new NettyServerConfig();
        Class<?>[] types = {BrokerConfig.class, NettyServerConfig.class, NettyClientConfig.class, MessageStoreConfig.class};
        Object[] values = {config, server, new NettyClientConfig(), store};
        try {
            Class<?> auth = Class.forName("org.apache.rocketmq.auth.config.AuthConfig");
            types = Arrays.copyOf(types, 5);
            types[4] = auth;
            values = Arrays.copyOf(values, 5);
            values[4] = auth.getConstructor().newInstance();
        } catch (ClassNotFoundException none) { }
        broker = BrokerController.class.getConstructor(types).newInstance(values);
        Class<?> kind = Class.forName("org.apache.rocketmq.store.DefaultMessageStore");
        Field unsafe = Class.forName("sun.misc.Unsafe").getDeclaredField("theUnsafe");
        unsafe.setAccessible(true);
        messages = unsafe.getType().getMethod("allocateInstance", Class.class).invoke(unsafe.get(null), kind);
        Field own = kind.getDeclaredField("messageStoreConfig");
        own.setAccessible(true);
        own.set(messages, store);
        for (Method each : BrokerController.class.getMethods())
            if (each.getName().equals("setMessageStore")) each.invoke(broker, messages);
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, "UTF-8");
        System.setOut(System.err);                       // whatever a library prints is not an answer
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        ManagersMain main = new ManagersMain();
        for (String line; (line = requests.readLine()) != null; ) {
            JsonObject answer = new JsonObject();
            try {
                main.answer(JsonParser.parseString(line).getAsJsonObject(), answer);
            } catch (Throwable e) {
                e.printStackTrace();
                answer.addProperty("error", e.toString());
            }
            answers.println(JSON.toJson(answer));
        }
        Runtime.getRuntime().halt(0);
    }

    private void answer(JsonObject request, JsonObject answer) throws Exception {
        String root = request.get("store").getAsString();
        store.setStorePathRootDir(root);
        for (JsonElement each : request.getAsJsonArray("files")) {
            String file = each.getAsString();
            for (String name : MANAGERS.get(file)) {
                Class<?> kind;
                try {
                    kind = Class.forName("org.apache.rocketmq." + name);
                } catch (ClassNotFoundException another) {
                    continue;
                }
                JsonObject found = new JsonObject();
                answer.add(file, found);
                Object manager = null;
                try {
                    manager = make(kind, root + "/config/" + file);
                    found.addProperty("loaded", load(kind, manager));
                } catch (Throwable e) {
                    found.addProperty("exception", root(e).getClass().getSimpleName());
                }
                if (manager != null && !file.equals("timercheck")) table(manager, found);
                else if (manager != null) check(manager, found);
                if (manager != null && request.has("persist") && request.get("persist").getAsBoolean())
                    manager.getClass().getMethod("persist").invoke(manager);
                if (manager != null && file.endsWith("/")) manager.getClass().getMethod("stop").invoke(manager);
                break;
            }
        }
    }

    private Object make(Class<?> kind, String path) throws Exception {
        for (Constructor<?> each : kind.getDeclaredConstructors()) {
            if (each.getParameterCount() != 1) continue;
            each.setAccessible(true);
            Class<?> wanted = each.getParameterTypes()[0];
            if (wanted == String.class) return each.newInstance(path);
            if (wanted.isInstance(broker)) return each.newInstance(broker);
            if (wanted.isInstance(messages)) return each.newInstance(messages);
        }
        throw new NoSuchMethodException(kind.getName());
    }

    /** ConfigManager's own load(): what schedules add to it needs the queues of a store. */
    private static boolean load(Class<?> kind, Object manager) throws Throwable {
        if (!(manager instanceof ConfigManager)) return true;
        if (!kind.getSimpleName().equals("ScheduleMessageService")) return ((ConfigManager) manager).load();
        MethodHandles.Lookup inside = MethodHandles.privateLookupIn(kind, MethodHandles.lookup());
        MethodType type = MethodType.methodType(boolean.class);
        return (boolean) inside.findSpecial(ConfigManager.class, "load", type, kind).bindTo(manager).invoke();
    }

    private static void table(Object manager, JsonObject found) {
        try {
            found.addProperty("table", (String) manager.getClass().getMethod("encode").invoke(manager));
        } catch (Throwable e) {
            found.addProperty("table_exception", root(e).toString());
        }
    }

    private static void check(Object point, JsonObject found) throws Exception {
        for (String name : new String[] {"LastReadTimeMs", "LastTimerLogFlushPos", "LastTimerQueueOffset"})
            found.addProperty(name, ((Number) point.getClass().getMethod("get" + name).invoke(point)).longValue());
        point.getClass().getMethod("shutdown").invoke(point);
    }

    private static Throwable root(Throwable e) {
        return e instanceof InvocationTargetException && e.getCause() != null ? e.getCause() : e;
    }
}
