package config;

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Properties;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * Reads texts as a broker reads its broker.conf. In: base64. Out: "-" where no broker starts with it, else words, each
 * the base64 of `TYPE NAME=VALUE`: of options by the type of their setter, of what is written as `written`.
 */
public final class BrokerConf {
    private BrokerConf() {
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(answer(Base64.getDecoder().decode(line)));
        }
    }

    private static String answer(byte[] text) throws Exception {
        Properties written = new Properties();
        try {
            written.load(new ByteArrayInputStream(text));
        } catch (IllegalArgumentException error) {
            return "-";
        }
        StringBuilder words = new StringBuilder();
        for (String name : written.stringPropertyNames()) {
            tell(words, "written", name, written.getProperty(name));
        }
        for (Object config : new Object[] {new BrokerConfig(), new MessageStoreConfig()}) {
            MixAll.properties2Object(written, config);
            for (Method setter : config.getClass().getMethods()) {
                if (setter.getName().startsWith("set") && setter.getParameterCount() == 1) {
                    option(words, config, setter);
                }
            }
        }
        return words.toString().trim();
    }

    private static void option(StringBuilder words, Object config, Method setter) throws Exception {
        String name = setter.getName().substring(3);
        String type = setter.getParameterTypes()[0].getSimpleName();
        String key = name.substring(0, 1).toLowerCase() + name.substring(1);
        try {
            Method getter = config.getClass().getMethod((type.equals("boolean") ? "is" : "get") + name);
            tell(words, type, key, String.valueOf(getter.invoke(config)));
        } catch (NoSuchMethodException error) {
            // nobody can ask for it
        }
    }

    private static void tell(StringBuilder words, String type, String name, String value) {
        byte[] word = (type + " " + name + "=" + value).getBytes(StandardCharsets.UTF_8);
        words.append(Base64.getEncoder().encodeToString(word)).append(' ');
    }
}
