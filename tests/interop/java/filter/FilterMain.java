package filter;

import com.google.gson.Gson;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.filter.expression.BooleanExpression;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.MQFilterException;
import org.apache.rocketmq.filter.parser.SelectorParser;
import org.apache.rocketmq.filter.util.BloomFilter;

/** One JSON request a line: an expression and property maps, or a name for the bloom filter. */
public final class FilterMain {
    static final class Request {
        String expression;
        List<Map<String, String>> messages;
        int errorRate;
        int consumers;
        List<String> names;
    }

    private static final Gson GSON = new Gson();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Request request = GSON.fromJson(line, Request.class);
            out.println(GSON.toJson(request.names == null ? filtered(request) : bits(request)));
            out.flush();
        }
    }

    /** One letter a message: T rue, F alse, N ull, E xception; null where the expression is refused. */
    private static Map<String, Object> filtered(Request request) {
        Map<String, Object> answer = new HashMap<>();
        BooleanExpression expression;
        try {
            expression = SelectorParser.parse(request.expression);
        } catch (MQFilterException refused) {
            answer.put("refused", true);
            return answer;
        }
        StringBuilder letters = new StringBuilder();
        for (Map<String, String> properties : request.messages) {
            letters.append(letter(expression, properties));
        }
        answer.put("results", letters.toString());
        return answer;
    }

    private static char letter(BooleanExpression expression, Map<String, String> properties) {
        try {
            Object result = expression.evaluate(new EvaluationContext() {
                @Override
                public Object get(String name) {
                    return properties.get(name);
                }

                @Override
                public Map<String, Object> keyValues() {
                    return new HashMap<>(properties);
                }
            });
            return result == null ? 'N' : (Boolean) result ? 'T' : 'F';
        } catch (Throwable thrown) {
            return 'E';
        }
    }

    private static Map<String, Object> bits(Request request) {
        BloomFilter filter = BloomFilter.createByFn(request.errorRate, request.consumers);
        List<int[]> positions = new ArrayList<>();
        for (String name : request.names) {
            positions.add(filter.calcBitPositions(name));
        }
        Map<String, Object> answer = new HashMap<>();
        answer.put("bits", filter.getM());
        answer.put("positions", positions);
        return answer;
    }
}
