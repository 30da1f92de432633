package config;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;

/** Reads texts as a broker reads its configuration: base64 in, base64 of the value or "-" out. */
public final class ConfigJson {
    private ConfigJson() {
    }

    public static void main(String[] arguments) throws Exception {
        Class<?> serializable =
            Class.forName("org.apache.rocketmq.remoting.protocol.RemotingSerializable");
        Method read = serializable.getMethod("fromJson", String.class, Class.class);
        Method write = serializable.getMethod("toJson", Object.class, boolean.class);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String text = new String(Base64.getDecoder().decode(line), StandardCharsets.UTF_8);
            System.out.println(answer(read, write, text));
        }
    }

    private static String answer(Method read, Method write, String text) throws Exception {
        try {
            Object value = read.invoke(null, text, Map.class);
            String json = value == null ? "null" : (String) write.invoke(null, value, false);
            return Base64.getEncoder().encodeToString(json.getBytes(StandardCharsets.UTF_8));
        } catch (InvocationTargetException error) {
            return "-";
        }
    }
}
