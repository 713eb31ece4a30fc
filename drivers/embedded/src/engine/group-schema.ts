/**
 * The tables of groups, part of the store's schema. They refer to topics by the catalog's id, which is never used twice, so rows of
 * a deleted topic can never be taken for rows of a new one of the same name.
 */
export const groupSchema: string = `
  -- One group of one topic. Groups of one name over several topics share their members' assignment, and nothing else.
  CREATE TABLE consumer_group (
    id         INTEGER PRIMARY KEY,
    name       TEXT    NOT NULL,
    topic      INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    UNIQUE (name, topic)
  ) STRICT;
  CREATE INDEX consumer_group_by_topic ON consumer_group (topic);

  -- One incarnation of a member: a row is never taken up again once it was removed.
  CREATE TABLE group_member (
    id                   INTEGER PRIMARY KEY AUTOINCREMENT,
    group_name           TEXT    NOT NULL,
    member_id            TEXT    NOT NULL,
    pid                  INTEGER NOT NULL,
    started              TEXT    NOT NULL,
    place                TEXT    NOT NULL,
    session_timeout_ms   INTEGER NOT NULL,
    rebalance_timeout_ms INTEGER NOT NULL,
    beats                INTEGER NOT NULL
  ) STRICT;
  CREATE INDEX group_member_by_group ON group_member (group_name);

  -- What a member wants to read, by name, so that it finds a topic again that was recreated. No group: the topic is not there now.
  CREATE TABLE group_subscription (
    member   INTEGER NOT NULL,
    stream   TEXT    NOT NULL,
    topic    TEXT    NOT NULL,
    group_id INTEGER,
    PRIMARY KEY (member, stream, topic)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX group_subscription_by_group ON group_subscription (group_id);

  -- Who owns a partition. The claim's number is new at each change of hands. With an heir it is being revoked for that member.
  CREATE TABLE group_claim (
    group_id  INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    claim     INTEGER NOT NULL,
    member    INTEGER NOT NULL,
    heir      INTEGER,
    PRIMARY KEY (group_id, partition)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX group_claim_by_member ON group_claim (member);

  CREATE TABLE group_claim_counter (next INTEGER NOT NULL) STRICT;
  INSERT INTO group_claim_counter VALUES (1);
`
