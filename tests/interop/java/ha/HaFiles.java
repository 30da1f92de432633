package ha;

import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.rocketmq.store.ha.autoswitch.*;

/**
 * The files of a broker with a controller, written and read by the real classes. A request is a line of words with tabs between:
 *
 *   write-epochs PATH EPOCH-OFFSET …      write-identity PATH CLUSTER NAME ID [CHECK CODE]
 *   read-epochs PATH                      read-identity PATH [temp]
 *   consistent OWN END MASTER END         (where the log of a slave and that of a master part)
 *
 * Answers: what was read, with blanks between; "-" where the class did not take the file.
 */
public final class HaFiles {
    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, "UTF-8");
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = requests.readLine()) != null; ) {
            String[] words = line.split("\t");
            String answer;
            try {
                answer = answer(words);
            } catch (Exception e) {
                answer = "-";
            }
            answers.println(answer);
        }
    }

    private static String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "write-epochs": return writeEpochs(words);
            case "read-epochs": return readEpochs(words[1]);
            case "write-identity":
                if (words.length > 5) new TempBrokerMetadata(words[1]).updateAndPersist(words[2], words[3], Long.valueOf(words[4]), words[5]);
                else new BrokerMetadata(words[1]).updateAndPersist(words[2], words[3], Long.valueOf(words[4]));
                return "ok";
            case "consistent": return consistent(words);
            case "read-identity": return readIdentity(words);
            default: throw new IllegalArgumentException(words[0]);
        }
    }

    /** EpochEntry moved from one package to another: its cache takes it by reflection. */
    private static String writeEpochs(String[] words) throws Exception {
        EpochFileCache cache = new EpochFileCache(words[1]);
        java.lang.reflect.Method append = null;
        for (java.lang.reflect.Method m : EpochFileCache.class.getMethods()) if (m.getName().equals("appendEntry")) append = m;
        for (int i = 2; i < words.length; i++) {
            String[] parts = words[i].split("-");
            Object entry = append.getParameterTypes()[0].getConstructor(int.class, long.class)
                .newInstance(Integer.parseInt(parts[0]), Long.parseLong(parts[1]));
            append.invoke(cache, entry);
        }
        return "ok";
    }

    private static String readEpochs(String path) throws Exception {
        EpochFileCache cache = new EpochFileCache(path);
        if (!cache.initCacheFromFile()) return "-";
        StringJoiner all = new StringJoiner(" ");
        for (Object entry : (List<?>) EpochFileCache.class.getMethod("getAllEntries").invoke(cache)) {
            Class<?> type = entry.getClass();
            all.add(type.getMethod("getEpoch").invoke(entry) + "-" + type.getMethod("getStartOffset").invoke(entry));
        }
        return all.toString();
    }

    private static String consistent(String[] words) throws Exception {
        EpochFileCache own = new EpochFileCache(words[1]), master = new EpochFileCache(words[3]);
        if (!own.initCacheFromFile() || !master.initCacheFromFile()) return "-";
        own.setLastEpochEntryEndOffset(Long.parseLong(words[2]));
        master.setLastEpochEntryEndOffset(Long.parseLong(words[4]));
        return String.valueOf(own.findConsistentPoint(master));
    }

    private static String readIdentity(String[] words) throws Exception {
        if (words.length > 2) {
            TempBrokerMetadata found = new TempBrokerMetadata(words[1]);
            found.readFromFile();
            return found.isLoaded() ? told(found) + " " + found.getRegisterCheckCode() : "-";
        }
        BrokerMetadata found = new BrokerMetadata(words[1]);
        found.readFromFile();
        return found.isLoaded() ? told(found) : "-";
    }

    private static String told(BrokerMetadata found) {
        return found.getClusterName() + " " + found.getBrokerName() + " " + found.getBrokerId();
    }
}
