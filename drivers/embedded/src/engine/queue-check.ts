/** What the offline check of a store asks of the tables of work queues and of small state. */
import type { TableCheck } from "./group-check.ts"

/** That queues, places, leases and holders belong together, and that their counters are true. */
export const queueChecks: readonly TableCheck[] = [
  {
    sql: "SELECT id, name, topic FROM work_queue WHERE topic NOT IN (SELECT id FROM topic)",
    problem: ({ id, name, topic }) => `queue ${name} (${id}) is of a topic that does not exist (${topic})`,
  },
  {
    sql: `SELECT queue, partition FROM queue_partition LEFT JOIN work_queue ON id = queue
          WHERE id IS NULL OR NOT EXISTS (SELECT 1 FROM topic_partition AS place
            WHERE place.topic = work_queue.topic AND place.partition = queue_partition.partition)`,
    problem: ({ queue, partition }) =>
      `queue ${queue} is somewhere in partition ${partition}, and one of them is not there`,
  },
  {
    sql: `SELECT lease.queue, lease.id, first, count, next FROM queue_lease AS lease
          LEFT JOIN queue_partition AS place ON place.queue = lease.queue AND place.partition = lease.partition
          WHERE next IS NULL OR first < 0 OR first + count > next`,
    problem: ({ queue, id, first, count }) =>
      `lease ${id} of queue ${queue} holds offset ${first} and ${count} in all, more than was handed out`,
  },
  {
    sql: `SELECT queue, id, count, open FROM queue_lease
          WHERE open < 1 OR open > count OR deliveries < 1 OR wait_ms < 0
          OR (done IS NULL AND open <> count) OR length(done) <> (count + 7) / 8`,
    problem: ({ queue, id, count, open }) =>
      `lease ${id} of queue ${queue} contradicts itself: ${open} of ${count} are open`,
  },
  {
    sql: `SELECT work_queue.id, pending, coalesce(sum(open), 0) AS open, next_lease, max(lease.id) AS most
          FROM work_queue LEFT JOIN queue_lease AS lease ON lease.queue = work_queue.id
          GROUP BY work_queue.id HAVING pending <> coalesce(sum(open), 0) OR next_lease <= max(lease.id)`,
    problem: ({ id, pending, open, next_lease, most }) =>
      `queue ${id} counts ${pending} records that are handed out, and ${open} are; its next lease is ${next_lease} behind ${most}`,
  },
  {
    sql: "SELECT queue, id, holder FROM queue_lease WHERE holder IS NOT NULL AND holder NOT IN (SELECT id FROM queue_holder)",
    problem: ({ queue, id, holder }) => `lease ${id} of queue ${queue} is held by nobody (${holder})`,
  },
  {
    sql: `SELECT key, revision, (SELECT revision FROM state_counter) AS counter FROM small_state
          WHERE revision < 1 OR revision > (SELECT revision FROM state_counter) OR (SELECT count(*) FROM state_counter) <> 1`,
    problem: ({ key, revision, counter }) =>
      `the value of ${Buffer.from(key as Uint8Array).toString()} has revision ${revision}, and the counter is ${counter}`,
  },
]
