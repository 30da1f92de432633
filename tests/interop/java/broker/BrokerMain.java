package broker;

import com.google.gson.*;
import java.io.*;
import java.lang.reflect.*;
import java.net.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.consumer.*;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.*;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.*;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * A whole broker with a name server and real clients, on loopback ports, in one JVM.
 * One JSON request per line on stdin, one JSON answer per line on stdout: start, consume, leave, commit, serve, received, checked, stop.
 * Compiled against each version: what one of them lacks is reached by name.
 */
public final class BrokerMain {
    private static final Gson JSON = new GsonBuilder().disableHtmlEscaping().serializeNulls().create();
    private static final String LOOPBACK = Loopback.ADDRESS;
    private static final String GROUP = "mqstore-interop";

    private final Queue<JsonObject> received = new ConcurrentLinkedQueue<>();
    private final Queue<JsonObject> checked = new ConcurrentLinkedQueue<>();
    private final Map<String, DefaultMQPushConsumer> consumers = new HashMap<>();
    private NamesrvController names;
    private BrokerController broker;
    private String namesAddress;

    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, "UTF-8");
        System.setOut(System.err);                       // whatever a library prints is not an answer
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        BrokerMain main = new BrokerMain();
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
        Runtime.getRuntime().halt(0);                    // stdin closed without a stop: as a kill
    }

    private void answer(JsonObject request, JsonObject answer) throws Exception {
        switch (request.get("do").getAsString()) {
            case "start": start(request, answer); break;
            case "consume": consume(request); break;
            case "leave": consumers.remove(request.get("group").getAsString()).shutdown(); break;
            case "commit": commit(request); break;
            case "serve": serve(request); break;
            case "produce": produce(request, answer); break;
            case "decide": decide(request); break;
            case "received": answer.add("messages", JSON.toJsonTree(received)); break;
            case "checked": answer.add("messages", JSON.toJsonTree(checked)); break;
            case "stop": broker.shutdown(); names.shutdown(); break;
            default: throw new IllegalArgumentException("unknown request " + request);
        }
    }

    private void start(JsonObject request, JsonObject answer) throws Exception {
        NettyServerConfig nameServer = server(freePort());
        names = new NamesrvController(new NamesrvConfig(), nameServer);
        if (!names.initialize()) throw new IllegalStateException("the name server does not start");
        Loopback.only(names);
        names.start();
        namesAddress = LOOPBACK + ":" + nameServer.getListenPort();

        BrokerConfig config = new BrokerConfig();
        config.setNamesrvAddr(namesAddress);
        config.setBrokerIP1(LOOPBACK);
        config.setBrokerIP2(LOOPBACK);
        set(config, request, "broker");
        MessageStoreConfig store = new MessageStoreConfig();
        String root = request.get("store").getAsString();
        store.setStorePathRootDir(root);
        store.setStorePathCommitLog(root + "/commitlog");
        store.setHaListenPort(0);
        set(store, request, "config");
        NettyServerConfig server = server(freePort());
        set(config, "listenPort", Integer.toString(server.getListenPort()));     // 5.x has it here, too
        broker = controller(config, server, new NettyClientConfig(), store);
        if (!broker.initialize()) throw new IllegalStateException("the broker does not load the store");
        Loopback.only(broker);
        broker.start();
        broker.registerBrokerAll(true, false, true);
        for (int wait = 0; names.getRouteInfoManager().pickupTopicRouteData(config.getBrokerClusterName()) == null; wait++) {
            if (wait == 3000) throw new IllegalStateException("the broker does not register");
            Thread.sleep(10);
        }
        answer.addProperty("port", server.getListenPort());
        answer.addProperty("started_ms", System.currentTimeMillis());
    }

    private static void set(Object config, String name, String value) {
        Properties values = new Properties();
        values.setProperty(name, value);
        MixAll.properties2Object(values, config);                               // passes over names that it has not
    }

    private static void set(Object config, JsonObject request, String name) {
        Properties values = new Properties();
        if (request.has(name))
            for (Map.Entry<String, JsonElement> e : request.getAsJsonObject(name).entrySet())
                values.setProperty(e.getKey(), e.getValue().getAsString());
        MixAll.properties2Object(values, config);
    }

    private static NettyServerConfig server(int port) {
        NettyServerConfig config = new NettyServerConfig();
        set(config, "bindAddress", Loopback.ADDRESS);
        config.setListenPort(port);
        return config;
    }

    /** The broker also opens the port before the previous one: both have to be free, and to stay so until it
     *  opens them: none of those that the system gives to connections. */
    private static int freePort() throws IOException {
        for (int attempt = 0; attempt < 100; attempt++) {
            int port = ThreadLocalRandom.current().nextInt(12_000, 32_000);
            try (ServerSocket one = new ServerSocket(port, 1, InetAddress.getByName(LOOPBACK));
                 ServerSocket fast = new ServerSocket(port - 2, 1, InetAddress.getByName(LOOPBACK))) {
                return port;
            } catch (BindException taken) { }
        }
        throw new IOException("no two free ports");
    }

    /** Some versions also want to know how clients are authorized. */
    private static BrokerController controller(BrokerConfig config, NettyServerConfig server, NettyClientConfig client,
                                               MessageStoreConfig store) throws Exception {
        Class<?>[] types = {BrokerConfig.class, NettyServerConfig.class, NettyClientConfig.class, MessageStoreConfig.class};
        Object[] values = {config, server, client, store};
        try {
            Class<?> auth = Class.forName("org.apache.rocketmq.auth.config.AuthConfig");
            types = Arrays.copyOf(types, 5);
            types[4] = auth;
            values = Arrays.copyOf(values, 5);
            values[4] = auth.getConstructor().newInstance();
        } catch (ClassNotFoundException none) { }
        return BrokerController.class.getConstructor(types).newInstance(values);
    }

    /**
     * A push consumer for {"topics": {"T": "expression"}}; what it gets is kept for `received`. group: of its own. refuse: bodies that
     * it gives back, and no more than "retries" times. pop: as messageRequestMode.json says. hold: it never answers.
     */
    private void consume(JsonObject request) throws Exception {
        String group = request.has("group") ? request.get("group").getAsString() : GROUP;
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setInstanceName(group);
        if (request.has("retries")) consumer.setMaxReconsumeTimes(request.get("retries").getAsInt());
        if (request.has("pop"))                                                  // 5.x: the broker says who reads what, and how
            consumer.getClass().getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
        Set<String> refused = new HashSet<>();
        if (request.has("refuse")) request.getAsJsonArray("refuse").forEach(body -> refused.add(body.getAsString()));
        consumer.setNamesrvAddr(namesAddress);
        consumer.setPollNameServerInterval(200);
        consumer.setHeartbeatBrokerInterval(200);                                // a lost one is else sent again after 30 s
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        for (Map.Entry<String, JsonElement> e : request.getAsJsonObject("topics").entrySet()) {
            String expression = e.getValue().getAsString();
            if (request.has("sql")) consumer.subscribe(e.getKey(), MessageSelector.bySql(expression));
            else consumer.subscribe(e.getKey(), expression);
        }
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            boolean back = false;
            for (MessageExt message : messages) {
                JsonObject got = describe(message);
                got.addProperty("group", group);
                received.add(got);
                back |= refused.contains(got.get("body").getAsString());
            }
            if (request.has("hold")) {
                try {
                    Thread.sleep(Long.MAX_VALUE);
                } catch (InterruptedException over) { }
            }
            return back ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        consumers.put(group, consumer);
    }

    /** As a command of an administrator: {"group", "topic", "queue_id", "offset"}. */
    private void commit(JsonObject request) {
        broker.getConsumerOffsetManager().commitOffset(LOOPBACK, request.get("group").getAsString(),
            request.get("topic").getAsString(), request.get("queue_id").getAsInt(), request.get("offset").getAsLong());
        broker.getConsumerOffsetManager().persist();
    }

    /** As one: {"topic", "perm", "queues"} or {"group", "enabled"}. */
    private void serve(JsonObject request) {
        if (request.has("group")) {
            var manager = broker.getSubscriptionGroupManager();
            manager.findSubscriptionGroupConfig(request.get("group").getAsString())
                .setConsumeEnable(request.get("enabled").getAsBoolean());
            manager.persist();
            return;
        }
        var config = broker.getTopicConfigManager().selectTopicConfig(request.get("topic").getAsString());
        if (request.has("perm")) config.setPerm(request.get("perm").getAsInt());
        if (request.has("queues")) config.setReadQueueNums(request.get("queues").getAsInt());
        broker.getTopicConfigManager().persist();
    }

    private static JsonObject describe(MessageExt m) {
        JsonObject o = new JsonObject();
        o.addProperty("received_ms", System.currentTimeMillis());
        o.addProperty("topic", m.getTopic());
        o.addProperty("queue_id", m.getQueueId());
        o.addProperty("queue_offset", m.getQueueOffset());
        o.addProperty("physical_offset", m.getCommitLogOffset());
        o.addProperty("store_timestamp", m.getStoreTimestamp());
        o.addProperty("born_timestamp", m.getBornTimestamp());
        o.addProperty("flag", m.getFlag());
        o.addProperty("body", new String(m.getBody(), StandardCharsets.UTF_8));
        o.add("properties", JSON.toJsonTree(m.getProperties()));
        return o;
    }

    /** The real client sends: {"messages": [{topic, body, properties}]}. */
    private void produce(JsonObject request, JsonObject answer) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(GROUP + "-producer");
        producer.setNamesrvAddr(namesAddress);
        producer.start();
        JsonArray results = new JsonArray();
        for (JsonElement each : request.getAsJsonArray("messages")) {
            JsonObject o = each.getAsJsonObject();
            Message message = new Message(o.get("topic").getAsString(),
                o.get("body").getAsString().getBytes(StandardCharsets.UTF_8));
            if (o.has("properties"))
                for (Map.Entry<String, JsonElement> e : o.getAsJsonObject("properties").entrySet())
                    MessageAccessor.putProperty(message, e.getKey(), e.getValue().getAsString());
            results.add(producer.send(message).getSendStatus().toString());
        }
        answer.add("results", results);
        producer.shutdown();
    }

    /**
     * A producer of transactions that the broker can ask: {"group", "topic", "decisions": {"body": "COMMIT_MESSAGE"}}.
     * What it was asked is kept for `checked`.
     */
    private void decide(JsonObject request) throws Exception {
        JsonObject decisions = request.getAsJsonObject("decisions");
        TransactionMQProducer producer = new TransactionMQProducer(request.get("group").getAsString());
        producer.setNamesrvAddr(namesAddress);
        producer.setTransactionListener(new TransactionListener() {
            @Override public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return LocalTransactionState.UNKNOW;
            }

            @Override public LocalTransactionState checkLocalTransaction(MessageExt message) {
                JsonObject asked = describe(message);
                checked.add(asked);
                return LocalTransactionState.valueOf(decisions.get(asked.get("body").getAsString()).getAsString());
            }
        });
        producer.start();
        producer.getDefaultMQProducerImpl().getmQClientFactory()                  // who to send heartbeats to
            .updateTopicRouteInfoFromNameServer(request.get("topic").getAsString());
        producer.getDefaultMQProducerImpl().getmQClientFactory().sendHeartbeatToAllBrokerWithLock();
    }
}
