// Streams of events: what a turn brings, and that nothing of it is lost when the socket drops.
import assert from "node:assert/strict"
import { check, ok, restarted, textOf } from "./checks.mjs"
import { EventRecorder, replayed, sessionOf } from "./event_recorder.mjs"
import { Relay } from "./relay.mjs"
import { saying } from "./turns.mjs"

export async function streams(api, { url, directory, connect, isKedge }) {
  for (const [name, subscribe] of [["project", api.events], ["server", api.globalEvents]]) {
    await check(`the events of a ${name} tell a turn from its beginning to its end`, async () => {
      const recorder = await EventRecorder.open(subscribe)
      const session = await ok(api.create({ title: "Told" }))
      const script = "write c.txt one\nsay It is told in pieces."
      const answer = await ok(api.prompt(session.id, saying(script)))
      await recorder.of("session.idle", session.id)
      const heard = recorder.events.filter((event) => sessionOf(event) === session.id)
      const kinds = heard.map(({ type }) => type)
      // OpenCode sometimes says that a subscriber is connected before it hears everything.
      const first = isKedge ? ["session.created"] : []
      for (const kind of [...first, "session.status", "message.updated", "session.idle"]) {
        assert.ok(kinds.includes(kind), kind)
      }
      const told = heard
        .filter(({ type }) => type === "message.part.delta")
        .map(({ properties }) => properties.delta)
      assert.equal(told.join(""), textOf(answer))
      recorder.close()
    })
  }
  // OpenCode's events have no ids, so that nobody can ask for those after one of them.
  if (!isKedge) return

  for (const name of ["events", "globalEvents"]) {
    await check(`${name} go on after a dropped socket, with what happened meanwhile`, async () => {
      const relay = await new Relay().open(url)
      const recorder = await EventRecorder.open(connect(relay.url, directory)[name])
      const session = await ok(api.create({ title: "Before" }))
      await ok(api.prompt(session.id, saying("say Before the drop.")))
      await recorder.of("session.idle", session.id)

      relay.drop()
      const dropped = recorder.events.length
      const script = "write d.txt one\nthink Nobody hears this.\nsay While away."
      await ok(api.prompt(session.id, saying(script)))
      await ok(api.update(session.id, { title: "After" }))
      assert.equal(recorder.events.length, dropped)
      relay.release()
      await heardEverything(recorder, api, session, "After")
    })
  }

  await check("a subscriber goes on after a restart that interrupted a turn", async () => {
    const relay = await new Relay().open(url)
    const recorder = await EventRecorder.open(connect(relay.url, directory).globalEvents)
    const session = await ok(api.create({ title: "Running" }))
    await ok(api.promptAsync(session.id, saying("slow 2 300s say Never said to its end.")))
    await recorder.of("message.part.delta", session.id)

    relay.hold()
    const anew = await restarted()
    const after = connect(anew, directory)
    await ok(after.update(session.id, { title: "Restarted" }))
    relay.aim(anew)
    relay.release()
    await heardEverything(recorder, after, session, "Restarted")
    const answer = (await ok(after.messages(session.id))).at(-1)
    assert.ok(answer.info.error && answer.info.time.completed)
    assert.deepEqual(await ok(after.status()), {})
    assert.equal(textOf(await ok(after.prompt(session.id, saying("say Go on.")))), "Go on.")
  })
}

// A subscriber that was away knows, once it heard of the last change, just what it can ask for.
async function heardEverything(recorder, api, session, title) {
  await recorder.until(
    ({ type, properties }) => type === "session.updated" && properties.info.title === title,
  )
  const messages = (await ok(api.messages(session.id))).map(withoutPatches)
  assert.deepEqual(replayed(recorder.events, session.id).map(withoutPatches), messages)
  const ids = recorder.events.map(({ id }) => id)
  assert.equal(new Set(ids).size, ids.length, "an event came twice")
  recorder.close()
}

// Patches are made for whoever asks; an event goes without them where making them takes too long.
function withoutPatches(message) {
  for (const diff of message.info.summary?.diffs ?? []) delete diff.patch
  return message
}
