/**
 * The tables of the log, as of format 1 of the store. Rows of the log are keyed by numbers that are never used twice, so that nothing of a
 * purged or deleted topic can be taken for something of a new one.
 *
 * An append touches four pages: the newest leaves of `batch` and `batch_summary`, the row of its segment, and one page of `log_state`,
 * which holds the counters of a partition and of its producers side by side for that reason.
 */

/**
 * The format that this program writes and the newest that it reads (`PRAGMA user_version`). 1: log, groups and offsets. 2: work queues,
 * small state and transactions as well. A store of an older format is brought up to this one when it is opened, in one commit.
 */
export const storeFormat: number = 2

/** `PRAGMA application_id`: the letters MLRC. */
export const applicationId: number = 0x4d4c5243

/** The tables that say what exists. */
export const catalogTables: readonly string[] = ["store_value", "stream", "topic", "topic_partition"]

/** A row id of `batch` is the partition's key times this, plus the number of the batch within the partition. */
export const batchesPerPartition: bigint = 1n << 40n

/** Catalog, log, ids and producers. */
export const logSchema: string = `
  -- Counters and facts of the whole store. 'catalog' grows with every change of the catalog.
  CREATE TABLE store_value (name TEXT PRIMARY KEY, value ANY NOT NULL) STRICT, WITHOUT ROWID;
  INSERT INTO store_value VALUES
    ('catalog', 1), ('nextTopic', 1), ('nextPartition', 1), ('nextProducer', 1), ('nextSegment', 1);

  CREATE TABLE stream (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, created INTEGER NOT NULL) STRICT;
  -- The stream of topics that are named without one. It always exists.
  INSERT INTO stream (name, created) VALUES ('', 0);

  CREATE TABLE topic (
    id                INTEGER PRIMARY KEY,
    stream            INTEGER NOT NULL,
    name              TEXT    NOT NULL,
    history           INTEGER NOT NULL,
    expire_after_ms   REAL,
    max_bytes         INTEGER,
    durability        TEXT    NOT NULL,
    offset_durability TEXT    NOT NULL,
    window_ms         REAL    NOT NULL,
    deduplicate_ids   INTEGER NOT NULL,
    created           INTEGER NOT NULL,
    native            TEXT,
    UNIQUE (stream, name)
  ) STRICT;

  CREATE TABLE topic_partition (
    topic     INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    key       INTEGER NOT NULL UNIQUE,
    PRIMARY KEY (topic, partition)
  ) STRICT, WITHOUT ROWID;

  -- producer 0: the partition's own counters (offsets, batch numbers, bytes ever written and removed, newest append time).
  -- Other producers: the last epoch, the next sequence, and the last batches as of producer-state.ts; time is of the last append.
  CREATE TABLE log_state (
    partition  INTEGER NOT NULL,
    producer   INTEGER NOT NULL,
    time       INTEGER NOT NULL,
    first      INTEGER,
    next       INTEGER,
    first_batch INTEGER,
    next_batch INTEGER,
    written    INTEGER,
    removed    INTEGER,
    epoch      INTEGER,
    sequence   INTEGER,
    recent     BLOB,
    PRIMARY KEY (partition, producer)
  ) STRICT, WITHOUT ROWID;

  -- One sealed batch, inline in body or in a segment at position. total: bytes of the partition up to and with this batch.
  CREATE TABLE batch (
    id       INTEGER PRIMARY KEY,
    base     INTEGER NOT NULL,
    count    INTEGER NOT NULL,
    time     INTEGER NOT NULL,
    total    INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    length   INTEGER NOT NULL,
    segment  INTEGER,
    position INTEGER,
    body     BLOB
  ) STRICT;

  -- size: the committed end. live: bytes of batches that are still there. state: 'open'; 'full';
  -- 'dead': without a batch; 'gone': the disk knows that, so the file may be removed.
  CREATE TABLE segment (
    id      INTEGER PRIMARY KEY,
    topic   INTEGER NOT NULL,
    size    INTEGER NOT NULL,
    live    INTEGER NOT NULL,
    created INTEGER NOT NULL,
    state   TEXT    NOT NULL
  ) STRICT;
  CREATE INDEX segment_open ON segment (topic) WHERE state = 'open';
  CREATE INDEX segment_dead ON segment (id) WHERE state IN ('dead', 'gone');

  -- The ids of a whole batch in one row, for the topic's deduplication window. own: 1 some records carry ids of their own,
  -- 2 all do, since records were left out, so that no id derives from the batch any more.
  CREATE TABLE batch_summary (
    partition INTEGER NOT NULL,
    id        BLOB    NOT NULL,
    number    INTEGER NOT NULL,
    base      INTEGER NOT NULL,
    count     INTEGER NOT NULL,
    time      INTEGER NOT NULL,
    own       INTEGER NOT NULL,
    PRIMARY KEY (partition, id)
  ) STRICT, WITHOUT ROWID;

  -- Ids that records carry, one by one, in topics that ask for it. period: append time divided by the window.
  CREATE TABLE record_id (
    partition INTEGER NOT NULL,
    period    INTEGER NOT NULL,
    id        BLOB    NOT NULL,
    record    INTEGER NOT NULL,
    PRIMARY KEY (partition, period, id)
  ) STRICT, WITHOUT ROWID;

  CREATE TABLE producer (id INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, used INTEGER NOT NULL) STRICT;

  -- Rows of batch that no partition counts any more and that are to be removed. partition: all of that partition's rows, in all tables.
  CREATE TABLE garbage (low INTEGER PRIMARY KEY, high INTEGER NOT NULL, partition INTEGER) STRICT;
`
