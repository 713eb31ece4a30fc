import { after, before, describe } from "node:test"
import { backgroundChapter } from "./client/background.ts"
import { backgroundFailuresChapter } from "./client/background-failures.ts"
import { badInputChapter } from "./client/bad-input.ts"
import { collectingChapter } from "./client/collecting.ts"
import { committingChapter } from "./client/committing.ts"
import { confluentChapter } from "./client/confluent.ts"
import { consumingChapter } from "./client/consuming.ts"
import { encryptionChapter } from "./client/encryption.ts"
import { fieldFidelityChapter } from "./client/field-fidelity.ts"
import { fieldOffsetsChapter } from "./client/field-offsets.ts"
import { fieldOrderChapter } from "./client/field-order.ts"
import { filtersChapter } from "./client/filters.ts"
import { groupLifeChapter } from "./client/group-life.ts"
import { groupSoakChapter } from "./client/group-soak.ts"
import { groupingChapter } from "./client/grouping.ts"
import { handingOverChapter } from "./client/handing-over.ts"
import { handlesChapter } from "./client/handles.ts"
import { handlingChapter } from "./client/handling.ts"
import { observingChapter } from "./client/observing.ts"
import { outOfPlaceChapter } from "./client/out-of-place.ts"
import { pollingChapter } from "./client/polling.ts"
import { positionsChapter } from "./client/positions.ts"
import { preparingChapter } from "./client/preparing.ts"
import { processingChapter } from "./client/processing.ts"
import { processingFailuresChapter } from "./client/processing-failures.ts"
import { producingChapter } from "./client/producing.ts"
import { queueEndsChapter } from "./client/queue-ends.ts"
import { queueHandlingChapter } from "./client/queue-handling.ts"
import { queueKeepingChapter } from "./client/queue-keeping.ts"
import { queueLettersChapter } from "./client/queue-letters.ts"
import { queueRefusalsChapter } from "./client/queue-refusals.ts"
import { queueRunningChapter } from "./client/queue-running.ts"
import { queueWaitsChapter } from "./client/queue-waits.ts"
import { queueingChapter } from "./client/queueing.ts"
import { readingChapter } from "./client/reading.ts"
import { runningChapter } from "./client/running.ts"
import { schemasChapter } from "./client/schemas.ts"
import { sendingFailuresChapter } from "./client/sending-failures.ts"
import { transactingChapter } from "./client/transacting.ts"
import { transactingOffsetsChapter } from "./client/transacting-offsets.ts"
import { typedDecodesChapter } from "./client/typed-decodes.ts"
import { typedReadingChapter } from "./client/typed-reading.ts"
import { typedRefusalsChapter } from "./client/typed-refusals.ts"
import { typedTroubleChapter } from "./client/typed-trouble.ts"
import { typingChapter } from "./client/typing.ts"
import { type BackendUnderTest, ClientRig } from "./rig/client-rig.ts"

const chapters: Readonly<Record<string, (rig: ClientRig) => void>> = {
  handles: handlesChapter,
  producing: producingChapter,
  "sending-failures": sendingFailuresChapter,
  background: backgroundChapter,
  "background-failures": backgroundFailuresChapter,
  collecting: collectingChapter,
  observing: observingChapter,
  consuming: consumingChapter,
  committing: committingChapter,
  grouping: groupingChapter,
  "group-life": groupLifeChapter,
  "handing-over": handingOverChapter,
  "group-soak": groupSoakChapter,
  handling: handlingChapter,
  filters: filtersChapter,
  running: runningChapter,
  polling: pollingChapter,
  positions: positionsChapter,
  "out-of-place": outOfPlaceChapter,
  reading: readingChapter,
  queueing: queueingChapter,
  "queue-handling": queueHandlingChapter,
  "queue-letters": queueLettersChapter,
  "queue-running": queueRunningChapter,
  "queue-keeping": queueKeepingChapter,
  "queue-waits": queueWaitsChapter,
  "queue-ends": queueEndsChapter,
  "queue-refusals": queueRefusalsChapter,
  typing: typingChapter,
  "typed-refusals": typedRefusalsChapter,
  "typed-reading": typedReadingChapter,
  "typed-trouble": typedTroubleChapter,
  "typed-decodes": typedDecodesChapter,
  schemas: schemasChapter,
  confluent: confluentChapter,
  encryption: encryptionChapter,
  "field-order": fieldOrderChapter,
  "field-offsets": fieldOffsetsChapter,
  "field-fidelity": fieldFidelityChapter,
  transacting: transactingChapter,
  "transacting-offsets": transactingOffsetsChapter,
  preparing: preparingChapter,
  processing: processingChapter,
  "processing-failures": processingFailuresChapter,
  "bad-input": badInputChapter,
}

/** Chapters of the client suite. */
export const clientChapterNames: readonly string[] = Object.keys(chapters)

/** Those of work queues. */
export const queueChapterNames: readonly string[] = clientChapterNames.filter((name) => name.startsWith("queue"))

/** Chapters that speak of nothing else than a part which a backend may lack; that it is refused is told by others. */
const chaptersOf: Readonly<Record<"queues" | "transactions", readonly string[]>> = {
  queues: queueChapterNames.filter((name) => name !== "queue-refusals"),
  transactions: ["transacting-offsets", "preparing", "processing", "processing-failures"],
}

/**
 * Declares the tests of the public API over a backend: the walk that users take, how neighbouring libraries failed (each test that
 * stems from a field report carries its id), and what is refused.
 * @param name What is under test, for the report.
 * @param options `only`: names of chapters to run; by default all. `lacks`: what the backend has not, whose chapters are left out; that
 *   its manifest says the same is checked.
 */
export function clientConformance(
  name: string,
  under: BackendUnderTest,
  options: { readonly only?: readonly string[]; readonly lacks?: readonly (keyof typeof chaptersOf)[] } = {},
): void {
  for (const only of options.only ?? []) {
    if (!(only in chapters)) {
      throw new Error(`no chapter ${JSON.stringify(only)}: there are ${clientChapterNames.join(", ")}`)
    }
  }
  const leftOut = (options.lacks ?? []).flatMap((part) => chaptersOf[part])
  describe(name, () => {
    const rig = new ClientRig(under)
    before(async () => {
      await rig.open()
      for (const part of options.lacks ?? []) {
        if (rig.client.manifest[part].supported) throw new Error(`${name} has ${part}: run their chapters`)
      }
    })
    after(() => rig.close())
    for (const [chapter, declare] of Object.entries(chapters)) {
      if (options.only?.includes(chapter) === false || leftOut.includes(chapter)) continue
      declare(rig)
    }
  })
}
