// What every script of this folder needs: checks that are told one by one, and results of the SDK.
import assert from "node:assert/strict"
import { createInterface } from "node:readline"

const told = { checks: [], calls: new Set() }
let running
const plain = globalThis.fetch

// Which routes were really asked; ids in them are left out.
globalThis.fetch = async (input, init) => {
  const request = input instanceof Request ? input : new Request(input, init)
  const path = new URL(request.url).pathname.replace(/(ses|msg|prt|per|que)_[^/]+/g, "{$1}")
  told.calls.add(`${request.method} ${path}`)
  return plain(input, init)
}

export async function check(behaviour, holds) {
  running = behaviour
  try {
    await holds()
    told.checks.push({ behaviour })
  } catch (error) {
    told.checks.push({ behaviour, error: error?.stack ?? String(error) })
  }
}

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]()

// Has the server started anew by whoever started this program; gives its new address.
export async function restarted() {
  console.log(JSON.stringify({ wanted: "restart" }))
  return (await lines.next()).value
}

// Ends everything after some seconds, because what does not come would be waited for for ever.
export function giveUpAfter(seconds) {
  const giveUp = () => {
    told.checks.push({ behaviour: running, error: "never ended" })
    tell()
  }
  setTimeout(giveUp, 1000 * seconds).unref()
}

export function tell() {
  console.log(JSON.stringify({ checks: told.checks, calls: [...told.calls].sort() }))
  process.exit(0)
}

// The data of an answer that must be a good one.
export async function ok(answer) {
  const { data, error, response } = await answer
  assert.equal(error, undefined, `${response.status} from ${response.url}`)
  return data
}

// The error of an answer that must have this status.
export async function refused(status, answer) {
  const { data, error, response } = await answer
  assert.equal(response.status, status, `${JSON.stringify(data ?? error)} from ${response.url}`)
  return error
}

export const textOf = (message) =>
  message.parts.filter((part) => part.type === "text").map((part) => part.text).join("")

export const toolsOf = (message) => message.parts.filter((part) => part.type === "tool")
