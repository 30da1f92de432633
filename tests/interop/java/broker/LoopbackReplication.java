package broker;

import java.io.IOException;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.ha.DefaultHAService;

/** The port for slaves of 5.x has no setting for its address, so the service gets one before it binds. */
final class LoopbackReplication extends DefaultHAService {
    LoopbackReplication() { }

    @Override public void init(DefaultMessageStore store) throws IOException {
        super.init(store);
        try {
            Loopback.replicate(this);
        } catch (ReflectiveOperationException e) {
            throw new IOException(e);
        }
    }
}
