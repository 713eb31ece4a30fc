/**
 * The worker's program as one text, for programs that are bundled into a single file, where no second file could be found. The build
 * replaces this module; running from the sources or from separate files there is none.
 */
export const workerCode: string | undefined = undefined
