export { clientChapterNames, clientConformance } from "./client-suite.ts"
export type { BackendUnderTest } from "./rig/client-rig.ts"
export type { DriverUnderTest } from "./rig/factory.ts"
export { chapterNames, conformance } from "./suite.ts"
