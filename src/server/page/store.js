// Conversations in this browser: all of them in memory, each change written to IndexedDB, other tabs told.

const NAME = "qgguf";
const TABLE = "conversations";

/** Opens what is kept. `isKept` is false where the browser refuses to keep anything (private windows). */
export async function openStore() {
  const db = await openDatabase().catch(() => null);
  const found = db ? await done(table(db, "readonly").getAll()) : [];
  const conversations = new Map(found.map((conversation) => [conversation.id, conversation]));
  return new Store(db, conversations);
}

class Store extends EventTarget {
  #db;
  #conversations;
  #tabs = new BroadcastChannel(NAME);

  constructor(db, conversations) {
    super();
    this.#db = db;
    this.#conversations = conversations;
    this.#tabs.onmessage = ({ data }) => this.#reload(data);
  }

  get isKept() {
    return this.#db !== null;
  }

  get(id) {
    return this.#conversations.get(id);
  }

  /** Every conversation, the latest first. */
  list() {
    return [...this.#conversations.values()].sort((a, b) => b.updated - a.updated);
  }

  async save(conversation) {
    this.#conversations.set(conversation.id, conversation);
    await this.#write(conversation.id, (rows) => rows.put(conversation));
  }

  async remove(id) {
    this.#conversations.delete(id);
    await this.#write(id, (rows) => rows.delete(id));
  }

  async #write(id, change) {
    this.dispatchEvent(new Event("change"));
    if (!this.#db) return;
    try {
      await done(change(table(this.#db, "readwrite")));
      this.#tabs.postMessage(id);
    } catch (error) {
      this.dispatchEvent(new CustomEvent("failure", { detail: error }));
    }
  }

  /** Another tab wrote this conversation. */
  async #reload(id) {
    if (!this.#db) return;
    const conversation = await done(table(this.#db, "readonly").get(id));
    if (conversation) this.#conversations.set(id, conversation);
    else this.#conversations.delete(id);
    this.dispatchEvent(new CustomEvent("elsewhere", { detail: id }));
    this.dispatchEvent(new Event("change"));
  }
}

function openDatabase() {
  const opening = indexedDB.open(NAME, 1);
  opening.onupgradeneeded = () => opening.result.createObjectStore(TABLE, { keyPath: "id" });
  return done(opening);
}

function table(db, mode) {
  return db.transaction(TABLE, mode).objectStore(TABLE);
}

function done(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}
