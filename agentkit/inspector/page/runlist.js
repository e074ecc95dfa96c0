// The list of runs: the server filters and sorts, and sends the list in parts.

import { get } from "./api.js";
import { say } from "./dom.js";

const NEWEST = { state: "", agent: "", user: "", error: "", tag: "", text: "", order: "newest" };

export class RunList {
  constructor() {
    Object.assign(this, { query: { ...NEWEST }, runs: [], older: null, isLoading: false, version: 0 });
  }

  get isFiltered() {
    return Object.entries(NEWEST).some(([name, value]) => this.query[name] !== value);
  }

  // The newest runs again: new runs are added at the start of the list, and known runs get their present state.
  take({ runs, older }) {
    const fresh = new Map(runs.map((run) => [run.id, run]));
    if (this.isFiltered) {
      this.runs = this.runs.map((run) => fresh.get(run.id) || run);
      return;
    }
    const others = this.runs.filter((run) => !fresh.has(run.id));
    const isConnected = others.length < this.runs.length; // no run between the fresh runs and the known runs is missing
    if (!isConnected || !others.length) this.older = older;
    this.runs = isConnected ? [...runs, ...others] : [...runs];
  }

  async filter(changes) {
    Object.assign(this.query, changes);
    this.version++;
    Object.assign(this, { runs: [], older: null, isLoading: false });
    await this.load(null);
  }

  async more() {
    if (this.older && !this.isLoading) await this.load(this.older);
  }

  // Adds a part. A part can be empty although the list continues, because the server examines a maximum of runs.
  async load(before) {
    const { version } = this;
    const known = new Set(this.runs.map((run) => run.id));
    this.isLoading = true;
    try {
      for (let found = 0; !found; ) {
        const part = await get("runs", before ? { ...this.query, before } : this.query);
        if (version !== this.version) return;
        const added = part.runs.filter((run) => !known.has(run.id));
        this.runs = [...this.runs, ...added];
        this.older = before = part.older;
        found = added.length || !before;
      }
    } catch (error) {
      if (version !== this.version) return;
      say(error.message);
      if (error.status === 409) return this.filter({});
      this.older = null;
    } finally {
      if (version === this.version) this.isLoading = false;
    }
  }
}
