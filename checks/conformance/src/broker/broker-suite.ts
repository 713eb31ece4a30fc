import { after, before, describe } from "node:test"
import { BrokerRig, type BrokerUnderTest } from "./broker-rig.ts"
import { drainingChapter } from "./draining.ts"
import { outagesChapter } from "./outages.ts"
import { rebalancingChapter } from "./rebalancing.ts"
import { sendingChapter } from "./sending.ts"

/** Declares the tests of a broker that is cut off, killed and restarted, through the public API. */
export function brokerConformance(name: string, under: BrokerUnderTest): void {
  describe(name, () => {
    const rig = new BrokerRig(under)
    before(() => rig.open())
    after(() => rig.close())
    outagesChapter(rig)
    sendingChapter(rig)
    drainingChapter(rig)
    rebalancingChapter(rig)
  })
}
