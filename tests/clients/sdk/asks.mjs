// What a session asks of people: permissions and questions.
import assert from "node:assert/strict"
import { existsSync } from "node:fs"
import { join } from "node:path"
import { check, ok, textOf, toolsOf } from "./checks.mjs"
import { EventRecorder } from "./event_recorder.mjs"
import { saying } from "./turns.mjs"

export async function asks(api, { directory }) {
  const session = await ok(api.create({ title: "Asks" }))
  const recorder = await EventRecorder.open(api.events)

  // Sends a prompt that asks something; gives the question, and the answer when it is there.
  async function asking(prompt, type) {
    const from = recorder.events.length
    const answer = ok(api.prompt(session.id, saying(prompt)))
    return { asked: (await recorder.of(type, session.id, from)).properties, answer }
  }

  await check("what is allowed once is done once", async () => {
    const { asked, answer } = await asking("bash touch p.txt", "permission.asked")
    assert.equal(asked.permission, "bash")
    assert.deepEqual(asked.patterns, ["touch p.txt"])
    assert.equal(existsSync(join(directory, "p.txt")), false)
    assert.equal(await ok(api.respond(session.id, asked.id, "once")), true)
    assert.match(textOf(await answer), /^Done: bash\./)
    assert.equal(existsSync(join(directory, "p.txt")), true)
  })

  await check("what is rejected is not done", async () => {
    const { asked, answer } = await asking("bash touch q.txt", "permission.asked")
    assert.equal(await ok(api.respond(session.id, asked.id, "reject")), true)
    const [tool] = toolsOf(await answer)
    assert.equal(tool.state.status, "error")
    assert.match(tool.state.error, /rejected/)
    assert.equal(existsSync(join(directory, "q.txt")), false)
  })

  if (api.reply) await asksOfTheSecondEntryPoint(api, session, asking, directory)
  recorder.close()
}

async function asksOfTheSecondEntryPoint(api, session, asking, directory) {
  await check("a permission is listed until it is replied to", async () => {
    const { asked, answer } = await asking("bash touch r.txt", "permission.asked")
    assert.deepEqual((await ok(api.permissions())).map(({ id }) => id), [asked.id])
    assert.equal(await ok(api.reply(asked.id, "once")), true)
    await answer
    assert.deepEqual(await ok(api.permissions()), [])
    assert.equal(existsSync(join(directory, "r.txt")), true)
  })

  await check("a question is listed and answered", async () => {
    const { asked, answer } = await asking("ask Which way? | north | south", "question.asked")
    assert.equal(asked.questions[0].question, "Which way?")
    assert.deepEqual((await ok(api.questions())).map(({ id }) => id), [asked.id])
    assert.equal(await ok(api.answer(asked.id, [["south"]])), true)
    await answer
    const [tool] = (await ok(api.messages(session.id))).flatMap(toolsOf).slice(-1)
    assert.match(tool.state.output, /south/)
    assert.deepEqual(await ok(api.questions()), [])
  })

  await check("a question is dismissed", async () => {
    const { asked, answer } = await asking("ask Which way? | north | south", "question.asked")
    assert.equal(await ok(api.dismiss(asked.id)), true)
    await answer
    const [tool] = (await ok(api.messages(session.id))).flatMap(toolsOf).slice(-1)
    assert.equal(tool.state.status, "error")
  })
}
