import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.compress.Lz4BlockOutputStream;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.utils.internals.ByteBufferOutputStream;

/**
 * Answers each line of standard input with one line, out of Kafka's own classes:
 *
 *   body NAME VERSION HEX        the message decoded and encoded again, as HEX, and as JSON
 *   frame NAME HEX               a request with its header (behind the length), the same; the JSON is of the body
 *   read HEX                     the record batches, a line of words: see print()
 *   build CODEC LEVEL TYPE SPEC  a batch of records as HEX; SPEC as print() has it, TYPE is create or append
 *   snappy HEX                   bytes as one bare snappy block
 *   lz4 FLAGS HEX                bytes as an lz4 frame; FLAGS: block size code, then b for block checksums, c for a content checksum
 */
class Oracle {
  static final HexFormat hex = HexFormat.of();

  public static void main(String[] args) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String answer;
      try {
        answer = answer(line.split(" ", -1));
      } catch (Throwable error) {
        Throwable cause = error.getCause() == null ? error : error.getCause();
        answer = "error " + cause.toString().replace('\n', ' ');
      }
      out.println(answer);
    }
    out.flush();
  }

  static String answer(String[] words) throws Exception {
    switch (words[0]) {
      case "body":
        return body(words[1], Short.parseShort(words[2]), ByteBuffer.wrap(hex.parseHex(words[3])), "");
      case "frame": {
        ByteBuffer buffer = ByteBuffer.wrap(hex.parseHex(words[2]));
        RequestHeader header = RequestHeader.parse(buffer);
        String prefix = hex.formatHex(written(header.data(), header.headerVersion()));
        return body(words[1], header.apiVersion(), buffer, prefix);
      }
      case "read":
        return read(ByteBuffer.wrap(hex.parseHex(words[1])));
      case "build":
        return build(words);
      case "snappy":
        return hex.formatHex(org.xerial.snappy.Snappy.compress(hex.parseHex(words[1])));
      case "lz4":
        return lz4(words[1], hex.parseHex(words[2]));
      default:
        throw new IllegalArgumentException(words[0]);
    }
  }

  static String body(String name, short version, ByteBuffer buffer, String prefix) throws Exception {
    String type = "org.apache.kafka.common.message." + name + (name.startsWith("ConsumerProtocol") ? "" : "Data");
    Class<?> data = Class.forName(type);
    Message message = (Message) data.getConstructor().newInstance();
    message.read(new ByteBufferAccessor(buffer), version);
    if (buffer.hasRemaining()) return "error " + buffer.remaining() + " bytes are left";
    byte[] again = written(message, version);
    JsonNode json = (JsonNode) Class.forName(type + "JsonConverter")
      .getMethod("write", data, short.class, boolean.class).invoke(null, message, version, true);
    return prefix + hex.formatHex(again) + " " + json;
  }

  static byte[] written(Message message, short version) {
    ObjectSerializationCache cache = new ObjectSerializationCache();
    ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
    message.write(new ByteBufferAccessor(buffer), cache, version);
    return buffer.array();
  }

  static String read(ByteBuffer buffer) {
    StringBuilder text = new StringBuilder();
    for (MutableRecordBatch batch : MemoryRecords.readableRecords(buffer).batches()) {
      batch.ensureValid();
      text.append("batch ").append(batch.baseOffset()).append(' ').append(batch.lastOffset()).append(' ')
        .append(batch.compressionType().name).append(' ').append(batch.timestampType().name).append(' ')
        .append(batch.maxTimestamp()).append(' ').append(batch.producerId()).append(' ')
        .append(batch.producerEpoch()).append(' ').append(batch.baseSequence()).append(' ')
        .append(batch.isTransactional()).append(' ').append(batch.isControlBatch());
      for (Record record : batch) {
        if (!record.hasMagic((byte) 2)) throw new IllegalStateException("format");
        text.append(' ').append(print(record));
      }
      text.append(' ');
    }
    return text.toString().trim();
  }

  /** offset:timestamp:key:value:name=value,… with bytes as hex and ~ for null. */
  static String print(Record record) {
    StringBuilder text = new StringBuilder();
    text.append(record.offset()).append(':').append(record.timestamp()).append(':').append(bytes(record.key())).append(':')
      .append(bytes(record.value())).append(':');
    String separator = "";
    for (Header header : record.headers()) {
      text.append(separator).append(hex.formatHex(header.key().getBytes(StandardCharsets.UTF_8))).append('=')
        .append(header.value() == null ? "~" : hex.formatHex(header.value()));
      separator = ",";
    }
    return text.toString();
  }

  static String bytes(ByteBuffer buffer) {
    if (buffer == null) return "~";
    byte[] copy = new byte[buffer.remaining()];
    buffer.duplicate().get(copy);
    return hex.formatHex(copy);
  }

  static String build(String[] words) {
    TimestampType type = words[3].equals("append") ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME;
    long first = Long.parseLong(words[4].split(":", -1)[0]);
    MemoryRecordsBuilder builder = new MemoryRecordsBuilder(new ByteBufferOutputStream(1024), (byte) 2,
      compression(words[1], words[2]), type, first, 1_700_000_000_000L, -1L, (short) -1, -1, false, false, 7,
      Integer.MAX_VALUE);
    for (int i = 4; i < words.length; i++) {
      String[] parts = words[i].split(":", -1);
      Header[] headers = parts[4].isEmpty() ? new Header[0] : headers(parts[4].split(","));
      builder.appendWithOffset(Long.parseLong(parts[0]), Long.parseLong(parts[1]), parsed(parts[2]), parsed(parts[3]), headers);
    }
    return bytes(builder.build().buffer());
  }

  static Header[] headers(String[] parts) {
    Header[] headers = new Header[parts.length];
    for (int i = 0; i < parts.length; i++) {
      String[] pair = parts[i].split("=", -1);
      headers[i] = new RecordHeader(new String(hex.parseHex(pair[0]), StandardCharsets.UTF_8), parsed(pair[1]));
    }
    return headers;
  }

  static byte[] parsed(String text) {
    return text.equals("~") ? null : hex.parseHex(text);
  }

  static Compression compression(String codec, String level) {
    switch (codec) {
      case "none": return Compression.NONE;
      case "gzip": return Compression.gzip().level(Integer.parseInt(level)).build();
      case "snappy": return Compression.snappy().build();
      case "lz4": return Compression.lz4().level(Integer.parseInt(level)).build();
      case "zstd": return Compression.zstd().level(Integer.parseInt(level)).build();
      default: throw new IllegalArgumentException(codec);
    }
  }

  static String lz4(String flags, byte[] content) throws Exception {
    if (!flags.contains("c")) {
      ByteBufferOutputStream bytes = new ByteBufferOutputStream(1024);
      try (OutputStream stream = new Lz4BlockOutputStream(bytes, flags.charAt(0) - '0', 1, flags.contains("b"), false)) {
        stream.write(content);
      }
      bytes.buffer().flip();
      return bytes(bytes.buffer());
    }
    java.io.ByteArrayOutputStream bytes = new java.io.ByteArrayOutputStream();
    net.jpountz.lz4.LZ4FrameOutputStream.BLOCKSIZE size = net.jpountz.lz4.LZ4FrameOutputStream.BLOCKSIZE.valueOf(flags.charAt(0) - '0');
    try (OutputStream stream = new net.jpountz.lz4.LZ4FrameOutputStream(bytes, size, content.length,
        net.jpountz.lz4.LZ4FrameOutputStream.FLG.Bits.BLOCK_INDEPENDENCE,
        net.jpountz.lz4.LZ4FrameOutputStream.FLG.Bits.CONTENT_CHECKSUM,
        net.jpountz.lz4.LZ4FrameOutputStream.FLG.Bits.CONTENT_SIZE,
        net.jpountz.lz4.LZ4FrameOutputStream.FLG.Bits.BLOCK_CHECKSUM)) {
      stream.write(content);
    }
    return hex.formatHex(bytes.toByteArray());
  }
}
