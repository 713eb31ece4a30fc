/** What the offline check of a store asks of the tables of groups and offsets. */

/** One question: each row of the answer is a problem. INTEGERs are bigints. */
export interface TableCheck {
  readonly sql: string
  /** The problem in one sentence. */
  problem(row: Readonly<Record<string, unknown>>): string
}

/** That offsets and groups belong to topics that exist, that members and claims belong together, and that no claim was given twice. */
export const groupChecks: readonly TableCheck[] = [
  {
    sql: `SELECT DISTINCT topic, owner_kind, owner FROM stored_offset WHERE topic NOT IN (SELECT id FROM topic)`,
    problem: ({ owner_kind, owner, topic }) =>
      `offsets of ${owner_kind} ${owner} are of a topic that does not exist (${topic})`,
  },
  {
    sql: `SELECT owner_kind, owner, topic, partition, next FROM stored_offset
          WHERE next < 0 OR (topic IN (SELECT id FROM topic) AND NOT EXISTS (
            SELECT 1 FROM topic_partition AS place
            WHERE place.topic = stored_offset.topic AND place.partition = stored_offset.partition))`,
    problem: ({ owner_kind, owner, topic, partition, next }) =>
      `the offset ${next} of ${owner_kind} ${owner} for partition ${partition} of topic ${topic} is out of range`,
  },
  {
    sql: "SELECT name, topic FROM consumer_group WHERE topic NOT IN (SELECT id FROM topic)",
    problem: ({ name, topic }) => `group ${name} is of a topic that does not exist (${topic})`,
  },
  {
    sql: `SELECT member, stream, topic FROM group_subscription
          WHERE member NOT IN (SELECT id FROM group_member)
          OR (group_id IS NOT NULL AND group_id NOT IN (SELECT id FROM consumer_group))`,
    problem: ({ member, stream, topic }) =>
      `member ${member} subscribes to ${stream}/${topic}, but one of the two is not there`,
  },
  {
    sql: `SELECT group_id, partition, claim FROM group_claim
          WHERE NOT EXISTS (SELECT 1 FROM group_subscription
            WHERE group_subscription.member = group_claim.member AND group_subscription.group_id = group_claim.group_id)
          OR (heir IS NOT NULL AND heir NOT IN (SELECT id FROM group_member))`,
    problem: ({ group_id, partition, claim }) =>
      `claim ${claim} on partition ${partition} of group ${group_id} is nobody's`,
  },
  {
    sql: `SELECT group_id, group_claim.partition, claim FROM group_claim
          JOIN consumer_group ON consumer_group.id = group_id
          WHERE topic IN (SELECT id FROM topic) AND NOT EXISTS (
            SELECT 1 FROM topic_partition AS place
            WHERE place.topic = consumer_group.topic AND place.partition = group_claim.partition)`,
    problem: ({ group_id, partition, claim }) =>
      `claim ${claim} is on partition ${partition}, which group ${group_id} has not`,
  },
  {
    sql: "SELECT claim, count(*) AS n FROM group_claim GROUP BY claim HAVING n > 1",
    problem: ({ claim, n }) => `claim ${claim} was given ${n} times`,
  },
  {
    sql: `SELECT next, (SELECT max(claim) FROM group_claim) AS most FROM group_claim_counter
          WHERE next < most OR (SELECT count(*) FROM group_claim_counter) <> 1`,
    problem: ({ next, most }) => `the counter of claims is ${next}, though ${most} is in use`,
  },
  {
    sql: "SELECT id, member_id FROM group_member WHERE id NOT IN (SELECT member FROM group_subscription)",
    problem: ({ id, member_id }) => `member ${member_id} (${id}) subscribes to nothing`,
  },
]
