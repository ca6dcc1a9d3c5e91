/*
 * A producer in Java, written from docs/protocol.md: asks, prints the answer as it comes, survives.
 *
 * It reads the fleet's own response topic with a Reader, which consumes nothing: whatever ends this
 * program or the broker, starting it again with the same id reads the run again from its beginning, for
 * as long as responses are kept. The request is the same, and is not run twice.
 *
 *   java -cp 'LIB/*' Ask.java --url pulsar://localhost:6650 --id ID [--pattern P] [--answer FILE] QUESTION
 *   java -cp 'LIB/*' Ask.java --url ... --id ID --body FILE     publishes the bytes of a file as they are
 *
 * The answer goes to standard output while it is said, everything else to standard error. Exit codes:
 * 0 answered, 1 the run ended in an error.
 */

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;

public class Ask {
    static final String REQUESTS = "persistent://public/default/agent-request";
    static final String RESPONSES = "persistent://public/default/agent-response";
    static final ObjectMapper JSON = new ObjectMapper();

    /** Puts messages together from chunks; drops repeats and what dead attempts said. */
    static class Collator {
        private final Map<String, TreeMap<Integer, String>> chunks = new HashMap<>();
        private final Set<String> ended = new HashSet<>();
        /** The new piece of text. */
        String piece;
        /** The whole text, if the message is complete. */
        String whole;

        void take(JsonNode response) {
            piece = null;
            whole = null;
            String message = response.path("message_id").asText("");
            if (message.isEmpty() || ended.contains(message)) {
                return;
            }
            TreeMap<Integer, String> known = chunks.computeIfAbsent(message, id -> new TreeMap<>());
            int seq = response.path("seq").asInt(0);
            String text = response.path("content").asText("");
            if (!response.path("end_of_message").asBoolean()) {
                piece = known.putIfAbsent(seq, text) == null ? text : null;
                return;
            }
            ended.add(message);
            chunks.remove(message);
            if (seq == 0) { // it comes whole, whatever was said before
                known.clear();
            }
            known.put(seq, text);
            piece = text;
            whole = String.join("", known.values());
        }
    }

    /** Prints one message while it is said: the one that began last, if several are. */
    static class Printer {
        private final Set<String> begun = new HashSet<>();
        private String message = "";
        private String text = "";

        void piece(String id, String piece) {
            if (begun.add(id)) {
                restart(id);
            }
            if (id.equals(message)) {
                out(piece);
            }
        }

        /** What was printed may not be what counts. */
        void whole(String id, String whole) {
            if (!id.equals(message) || !whole.startsWith(text)) {
                restart(id);
            }
            out(whole.substring(text.length()) + "\n");
        }

        private void restart(String id) {
            if (!text.isEmpty()) {
                System.out.println("\n(again)");
            }
            message = id;
            text = "";
        }

        private void out(String piece) {
            text += piece;
            System.out.print(piece);
            System.out.flush();
        }
    }

    public static void main(String[] args) throws Exception {
        Map<String, String> given = new HashMap<>();
        String question = "";
        for (int at = 0; at < args.length; at++) {
            if (args[at].startsWith("--")) {
                given.put(args[at].substring(2), args[++at]);
            } else {
                question = args[at];
            }
        }
        System.exit(ask(given, question));
    }

    static int ask(Map<String, String> given, String question) throws Exception {
        String id = given.get("id");
        byte[] body;
        if (given.containsKey("body")) {
            body = Files.readAllBytes(Path.of(given.get("body")));
        } else {
            body = JSON.writeValueAsBytes(JSON.createObjectNode()
                .put("question", question)
                .put("pattern", given.getOrDefault("pattern", ""))
                .put("streaming", true));
        }
        String url = given.getOrDefault("url", "pulsar://localhost:6650");
        try (PulsarClient client = PulsarClient.builder().serviceUrl(url).build();
                Producer<byte[]> producer = client.newProducer().topic(REQUESTS).enableBatching(false).create();
                Reader<byte[]> reader = client.newReader().topic(RESPONSES).startMessageId(MessageId.earliest).create()) {
            producer.newMessage().property("id", id).value(body).send();
            System.err.println("asked");
            return follow(reader, id, given.get("answer"));
        }
    }

    /** Prints the run that `id` asked for until it ends. */
    static int follow(Reader<byte[]> reader, String id, String file) throws Exception {
        Collator collator = new Collator();
        Printer printer = new Printer();
        while (true) {
            Message<byte[]> message = reader.readNext();
            if (!id.equals(message.getProperty("id"))) {
                continue; // another run's
            }
            JsonNode response = JSON.readTree(message.getData());
            boolean isRoot = response.path("session_id").asText().equals(message.getProperty("root"));
            String kind = response.path("message_type").asText();
            collator.take(response);
            String messageId = response.path("message_id").asText();
            if (kind.equals("answer") && isRoot && collator.whole != null) {
                printer.whole(messageId, collator.whole);
            } else if (kind.equals("answer") && isRoot && collator.piece != null) {
                printer.piece(messageId, collator.piece);
            } else if (collator.whole != null) {
                System.err.println("[" + kind + "] " + collator.whole);
            }
            if (collator.whole == null || !response.path("end_of_dialog").asBoolean()) {
                continue;
            }
            JsonNode error = response.get("error");
            if (error != null) {
                System.err.println("error " + error.path("type").asText() + ": " + error.path("message").asText());
                return 1;
            }
            byte[] answer = collator.whole.getBytes(StandardCharsets.UTF_8);
            byte[] digest = MessageDigest.getInstance("SHA-256").digest(answer);
            if (!HexFormat.of().formatHex(digest).equals(response.path("digest").asText())) {
                throw new IllegalStateException("the answer is not what was committed");
            }
            if (file != null) {
                Files.write(Path.of(file), answer);
            }
            return 0;
        }
    }
}
