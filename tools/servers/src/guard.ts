import type { ChildProcess } from "node:child_process"
import { spawn } from "node:child_process"

/**
 * Ends processes whose owner is gone, and removes its directory. A small shell reads the pipe that only the owner holds open: when it
 * closes without a farewell, however the owner ended, the shell kills what it was told of. It has a process group of its own, so a Ctrl-C
 * in the terminal does not reach it.
 */
export class Guard {
  readonly #shell: ChildProcess

  /** Watches over one directory from now on. */
  constructor(directory: string) {
    this.#shell = spawn("/bin/sh", ["-c", script, "millrace-guard", directory], {
      detached: true,
      stdio: ["pipe", "ignore", "ignore"],
    })
    this.#shell.unref()
    // Nothing reads an end of this pipe: an error means that the shell is gone, and then there is nobody to tell.
    this.#shell.stdin?.on("error", () => {})
    const { stdin } = this.#shell
    if (stdin !== null && "unref" in stdin) (stdin as unknown as { unref(): void }).unref()
  }

  /** A process that must not outlive its owner. */
  watch(pid: number): void {
    this.#tell(`watch ${pid}`)
  }

  /** The process ended: its number may soon be another's. */
  forget(pid: number): void {
    this.#tell(`forget ${pid}`)
  }

  /** Everything is ended and removed in good order. */
  dismiss(): void {
    this.#tell("dismiss 0")
    this.#shell.stdin?.end()
  }

  #tell(line: string): void {
    this.#shell.stdin?.write(`${line}\n`)
  }
}

const script = `
pids=""
while read -r order pid; do
  case $order in
    watch) pids="$pids $pid" ;;
    forget)
      left=""
      for known in $pids; do [ "$known" = "$pid" ] || left="$left $known"; done
      pids=$left ;;
    dismiss) exit 0 ;;
  esac
done
for pid in $pids; do kill -9 "$pid"; done
rm -rf "$1"
`
