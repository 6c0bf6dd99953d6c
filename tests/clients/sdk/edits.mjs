// Going back and changing what was said: revert, unrevert, fork, and messages and parts by hand.
import assert from "node:assert/strict"
import { existsSync } from "node:fs"
import { readFile } from "node:fs/promises"
import { join } from "node:path"
import { check, ok, textOf } from "./checks.mjs"
import { saying } from "./turns.mjs"

export async function edits(api, { directory }) {
  const session = await ok(api.create({ title: "Edits" }))
  const file = join(directory, "b.txt")
  await ok(api.prompt(session.id, saying("write b.txt one")))
  await ok(api.prompt(session.id, saying("edit b.txt one two")))
  const messages = await ok(api.messages(session.id))
  const [first, second] = messages.filter(({ info }) => info.role === "user")

  await check("a turn is reverted and comes back, with its files", async () => {
    const reverted = await ok(api.revert(session.id, { messageID: second.info.id }))
    assert.equal(reverted.revert.messageID, second.info.id)
    assert.equal(await readFile(file, "utf8"), "one\n")
    await ok(api.revert(session.id, { messageID: first.info.id }))
    assert.equal(existsSync(file), false)
    const restored = await ok(api.unrevert(session.id))
    assert.equal(restored.revert, undefined)
    assert.equal(await readFile(file, "utf8"), "two\n")
    assert.deepEqual(await ok(api.messages(session.id)), messages)
  })

  await check("a fork has what came before a message", async () => {
    const fork = await ok(api.fork(session.id, { messageID: second.info.id }))
    assert.equal(fork.title, "Edits (fork #1)")
    assert.equal(fork.parentID, undefined)
    const copied = await ok(api.messages(fork.id))
    const before = messages.slice(0, messages.findIndex(({ info }) => info === second.info))
    assert.deepEqual(copied.map(textOf), before.map(textOf))
    assert.ok(copied.every(({ info }) => info.sessionID === fork.id))
    assert.equal((await ok(api.messages((await ok(api.fork(session.id, {}))).id))).length, messages.length)
  })

  await check("a prompt after a revert makes it final", async () => {
    await ok(api.revert(session.id, { messageID: second.info.id }))
    await ok(api.prompt(session.id, saying("say Another way.")))
    const left = await ok(api.messages(session.id))
    assert.ok(!left.some(({ info }) => info.id === second.info.id))
    assert.equal(textOf(left.at(-1)), "Another way.")
    assert.equal(await readFile(file, "utf8"), "one\n")
  })

  if (!api.updatePart) return

  await check("parts and messages are changed and deleted by hand", async () => {
    const answer = (await ok(api.messages(session.id))).at(-1)
    const text = answer.parts.find(({ type }) => type === "text")
    const changed = await ok(api.updatePart({ ...text, text: "A better way." }))
    assert.equal(changed.text, "A better way.")
    assert.equal(textOf(await ok(api.message(session.id, answer.info.id))), "A better way.")
    assert.equal(await ok(api.deletePart(text)), true)
    assert.equal(textOf(await ok(api.message(session.id, answer.info.id))), "")
    assert.equal(await ok(api.deleteMessage(session.id, answer.info.id)), true)
    const left = await ok(api.messages(session.id))
    assert.ok(!left.some(({ info }) => info.id === answer.info.id))
  })
}
