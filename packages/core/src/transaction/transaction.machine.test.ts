import assert from "node:assert/strict"
import { test } from "node:test"
import { FencedError, StorageError, TransactionStateError } from "@millrace/contract"
import {
  type TransactionCall,
  TransactionMachine,
  type TransactionOutcome,
  type TransactionState,
} from "./transaction.machine.ts"

const fenced = new FencedError("epoch 2 has taken over")
const fatal = new StorageError("the disk is gone")

/** How each state is reached. */
const ways: Readonly<Record<TransactionState, (machine: TransactionMachine) => void>> = {
  Uninitialized: () => {},
  Initializing: (machine) => machine.call("init"),
  Ready: (machine) => {
    machine.call("init")
    machine.outcome({ kind: "initialized", prepared: false })
  },
  InTransaction: (machine) => {
    ways.Ready(machine)
    machine.call("begin")
  },
  Preparing: (machine) => {
    ways.InTransaction(machine)
    machine.call("prepare")
  },
  Prepared: (machine) => {
    machine.call("init")
    machine.outcome({ kind: "initialized", prepared: true })
  },
  CommittingOrAborting: (machine) => {
    ways.InTransaction(machine)
    machine.call("commit")
  },
  RecoveryRequired: (machine) => {
    ways.InTransaction(machine)
    machine.outcome({ kind: "doubtful" })
  },
  Fenced: (machine) => machine.outcome({ kind: "fenced", error: fenced }),
  FatalError: (machine) => machine.outcome({ kind: "fatal", error: fatal }),
}

const states = Object.keys(ways) as TransactionState[]
const calls: TransactionCall[] = ["init", "begin", "send", "sendOffsets", "prepare", "commit", "abort", "complete"]

/** Table 5.2, as it says which calls a state takes, and where they lead. */
const expected: Partial<Record<TransactionState, Partial<Record<TransactionCall, TransactionState>>>> = {
  Uninitialized: { init: "Initializing" },
  Ready: { init: "Initializing", begin: "InTransaction" },
  InTransaction: {
    send: "InTransaction",
    sendOffsets: "InTransaction",
    prepare: "Preparing",
    commit: "CommittingOrAborting",
    abort: "CommittingOrAborting",
  },
  Prepared: { commit: "CommittingOrAborting", abort: "CommittingOrAborting", complete: "CommittingOrAborting" },
  RecoveryRequired: { init: "Initializing" },
}

function at(state: TransactionState): TransactionMachine {
  const machine = new TransactionMachine('transactional producer "x"')
  ways[state](machine)
  assert.equal(machine.state, state)
  return machine
}

for (const state of states) {
  test(`calls in state ${state}`, () => {
    for (const call of calls) {
      const machine = at(state)
      const next = expected[state]?.[call]
      if (next !== undefined) {
        machine.call(call)
        assert.equal(machine.state, next, call)
        continue
      }
      assert.throws(
        () => machine.call(call),
        (error: Error) => {
          if (state === "Fenced") return error === fenced
          if (state === "FatalError") return error === fatal
          assert.ok(error instanceof TransactionStateError)
          assert.match(error.message, new RegExp(`"x": ${call} is not possible in state ${state}`))
          for (const allowed of Object.keys(expected[state] ?? {})) assert.match(error.message, new RegExp(allowed))
          return true
        },
        `${call} in ${state}`,
      )
      assert.equal(machine.state, state, "a refused call changes nothing")
    }
  })
}

/** Outcomes: where each state's own ones lead; those that come by themselves lead to the same place from anywhere. */
const outcomes: Partial<Record<TransactionState, Partial<Record<string, TransactionState>>>> = {
  Initializing: { ready: "Ready", kept: "Prepared", refused: "Uninitialized" },
  InTransaction: { refused: "Ready" },
  Preparing: { prepared: "Prepared", refused: "InTransaction" },
  CommittingOrAborting: { ended: "Ready", refused: "InTransaction" },
}

const named: Readonly<Record<string, TransactionOutcome>> = {
  ready: { kind: "initialized", prepared: false },
  kept: { kind: "initialized", prepared: true },
  prepared: { kind: "prepared" },
  ended: { kind: "ended" },
  refused: { kind: "refused" },
}

test("what comes of a call leads on, and nothing else comes", () => {
  for (const state of states) {
    for (const [name, outcome] of Object.entries(named)) {
      const machine = at(state)
      const next = outcomes[state]?.[name]
      if (next !== undefined) {
        machine.outcome(outcome)
        assert.equal(machine.state, next, `${name} in ${state}`)
      } else if (state === "Fenced" || state === "FatalError") {
        machine.outcome(outcome)
        assert.equal(machine.state, state, "it is for good")
      } else if (name !== "refused") {
        assert.throws(() => machine.outcome(outcome), /does not come in/, `${name} in ${state}`)
      }
    }
  }
})

test("doubt, fencing and fatal errors come in every state that is not for good", () => {
  for (const state of states) {
    const forGood = state === "Fenced" || state === "FatalError"
    for (const [outcome, next] of [
      [{ kind: "doubtful" }, "RecoveryRequired"],
      [{ kind: "fenced", error: fenced }, "Fenced"],
      [{ kind: "fatal", error: fatal }, "FatalError"],
    ] as const) {
      const machine = at(state)
      machine.outcome(outcome)
      assert.equal(machine.state, forGood ? state : next)
    }
  }
})

test("an init that is refused leads back where another one is needed", () => {
  const machine = at("Ready")
  machine.call("init")
  machine.outcome({ kind: "refused" })
  assert.equal(machine.state, "RecoveryRequired", "the former session may be fenced")
})

test("ending a prepared transaction that is refused leaves it prepared", () => {
  for (const call of ["commit", "abort", "complete"] as const) {
    const machine = at("Prepared")
    machine.call(call)
    machine.outcome({ kind: "refused" })
    assert.equal(machine.state, "Prepared")
  }
})

test("a held error stays until the transaction has ended", () => {
  const machine = at("InTransaction")
  const error = new StorageError("a record failed")
  machine.hold(error)
  machine.hold(fatal)
  machine.call("commit")
  machine.outcome({ kind: "refused" })
  assert.equal(machine.held, error, "the first reason counts")
  machine.call("abort")
  machine.outcome({ kind: "ended" })
  assert.equal(machine.held, undefined)
})
