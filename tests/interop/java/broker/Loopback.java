package broker;

import io.netty.bootstrap.ServerBootstrap;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.MessageStore;

/** Keeps servers to the loopback address. 5.x has the setting bindAddress for it, but not for the port for slaves. */
final class Loopback {
    static final String ADDRESS = "127.0.0.1";

    /** Before it starts. */
    static void only(NamesrvController names) throws ReflectiveOperationException {
        if (!hasSetting()) bind(names, "remotingServer");
    }

    /** Before it starts. */
    static void only(BrokerController broker) throws ReflectiveOperationException {
        if (!hasSetting()) {
            bind(broker, "remotingServer");
            bind(broker, "fastRemotingServer");
        }
        MessageStore store = broker.getMessageStore();
        Field service = field(store, "haService");
        if (service.getType().isInterface())                                      // opens its port when the store starts
            service.set(store, Class.forName("broker.LoopbackReplication").getDeclaredConstructor().newInstance());
        else replicate(service.get(store));
    }

    private static boolean hasSetting() {
        for (Method each : NettyServerConfig.class.getMethods()) if (each.getName().equals("setBindAddress")) return true;
        return false;
    }

    /** The port for slaves. */
    static void replicate(Object service) throws ReflectiveOperationException {
        Object acceptor = field(service, "acceptSocketService").get(service);
        field(acceptor, "socketAddressListen").set(acceptor, new InetSocketAddress(ADDRESS, 0));
    }

    private static void bind(Object owner, String name) throws ReflectiveOperationException {
        Object server = field(owner, name).get(owner);
        field(server, "serverBootstrap").set(server, new Bootstrap());
    }

    static final class Bootstrap extends ServerBootstrap {
        @Override public ServerBootstrap localAddress(SocketAddress any) {
            return super.localAddress(new InetSocketAddress(ADDRESS, ((InetSocketAddress) any).getPort()));
        }
    }

    private static Field field(Object owner, String name) throws NoSuchFieldException {
        for (Class<?> type = owner.getClass(); type != null; type = type.getSuperclass())
            try {
                Field field = type.getDeclaredField(name);
                field.setAccessible(true);
                return field;
            } catch (NoSuchFieldException above) { }
        throw new NoSuchFieldException(name);
    }
}
