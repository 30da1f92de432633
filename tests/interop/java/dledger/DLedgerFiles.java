package dledger;

import io.openmessaging.storage.dledger.*;
import io.openmessaging.storage.dledger.entry.DLedgerEntry;
import io.openmessaging.storage.dledger.store.file.DLedgerMmapFileStore;
import java.io.*;
import java.util.Random;

/**
 * Writes a DLedger log with the real file store: DLedgerFiles BASE ENTRIES. Each line of the answer is an entry as the store
 * gives it back: magic, pos, size, index, term. Files of data and index are small, so that there are several.
 */
public final class DLedgerFiles {
    private static final int DATA_BYTES = 4096;
    private static final int INDEX_BYTES = 32 * 20;
    private static final int ENTRIES_PER_TERM = 30;

    public static void main(String[] args) {
        try {
            run(args);
            Runtime.getRuntime().halt(0);            // the store's threads would go on
        } catch (Throwable e) {
            e.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void run(String[] args) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, "UTF-8");
        System.setOut(System.err);
        DLedgerConfig config = new DLedgerConfig();
        config.setStoreBaseDir(args[0]);
        config.setGroup("broker-a");
        config.setSelfId("n0");
        config.setPeers("n0-localhost:1");
        config.setMappedFileSizeForEntryData(DATA_BYTES);
        config.setMappedFileSizeForEntryIndex(INDEX_BYTES);
        MemberState member = new MemberState(config);
        DLedgerMmapFileStore store = new DLedgerMmapFileStore(config, member);
        store.startup();
        Random chance = new Random(1);
        int count = Integer.parseInt(args[1]);
        for (int i = 0; i < count; i++) {
            if (i % ENTRIES_PER_TERM == 0) {
                member.changeToCandidate(member.currTerm());
                member.changeToLeader(member.nextTerm());
            }
            DLedgerEntry entry = new DLedgerEntry();
            entry.setBody(new byte[chance.nextInt(500)]);
            store.appendAsLeader(entry);
        }
        store.flush();
        for (long i = 0; i < count; i++) {
            DLedgerEntry entry = store.get(i);
            answers.println(entry.getMagic() + " " + entry.getPos() + " " + entry.getSize() + " " + entry.getIndex() + " " + entry.getTerm());
        }
    }
}
