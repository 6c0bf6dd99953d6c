// A subscriber: everything that a stream of events brought, and waiting for what must come.

export class EventRecorder {
  events = []
  #waiting = []
  #stop = new AbortController()

  // `subscribe` takes the options of the SDK's subscriptions.
  static async open(subscribe) {
    const recorder = new EventRecorder()
    const { stream } = await subscribe({
      signal: recorder.#stop.signal,
      sseDefaultRetryDelay: 20,
    })
    recorder.#listen(stream)
    await recorder.until((event) => event.type === "server.connected")
    return recorder
  }

  async #listen(stream) {
    for await (const frame of stream) {
      // The global stream wraps events, to say where they happened.
      this.events.push(frame.payload ?? frame)
      this.#waiting = this.#waiting.filter(({ look }) => !look())
    }
    for (const { fail } of this.#waiting) fail(new Error("the stream ended"))
  }

  // The first event, since `from`, of which something holds.
  until(holds, from = 0) {
    return new Promise((resolve, fail) => {
      const look = () => {
        const found = this.events.slice(from).find(holds)
        if (found) resolve(found)
        return Boolean(found)
      }
      if (!look()) this.#waiting.push({ look, fail })
    })
  }

  // An event of a session.
  of(type, session, from = 0) {
    return this.until((event) => event.type === type && sessionOf(event) === session, from)
  }

  close() {
    this.#stop.abort()
  }
}

export const sessionOf = (event) => event.properties?.sessionID

// What a client knows of a session that has heard everything: messages and parts, newest wins.
export function replayed(events, session) {
  const messages = new Map()
  for (const event of events.filter((each) => sessionOf(each) === session)) {
    const { info, part, messageID, partID } = event.properties
    if (event.type === "message.updated") {
      messages.set(info.id, { info, parts: messages.get(info.id)?.parts ?? new Map() })
    } else if (event.type === "message.part.updated") {
      messages.get(part.messageID).parts.set(part.id, part)
    } else if (event.type === "message.removed") {
      messages.delete(messageID)
    } else if (event.type === "message.part.removed") {
      messages.get(messageID)?.parts.delete(partID)
    }
  }
  return [...messages.values()]
    .sort((a, b) => a.info.time.created - b.info.time.created)
    .map(({ info, parts }) => ({ info, parts: [...parts.values()].sort(byId) }))
}

const byId = (a, b) => (a.id < b.id ? -1 : 1)
