/** A process that takes all of a processor until it is killed. */
process.once("disconnect", () => process.exit(0))

function burn(): void {
  const end = performance.now() + 20
  while (performance.now() < end);
  setImmediate(burn)
}

burn()
