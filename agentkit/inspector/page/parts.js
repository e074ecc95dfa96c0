// A list that the server sends in parts: missing items are requested when they are needed.

import { say } from "./dom.js";

const PART = 50; // items of one request

export class Parts {
  // `known` are items with their index under the name `place`; `load(start)` requests items from an index; `onfresh`
  // is called with the index of each new item.
  constructor(count, known, place, load, onfresh = null) {
    Object.assign(this, { count, place, load, onfresh });
    this.items = new Array(count);
    this.asked = new Map();
    this.missing = count;
    this.take(known);
  }

  take(found) {
    const fresh = found.filter((item) => !this.items[item[this.place]]);
    for (const item of fresh) this.items[item[this.place]] = item;
    this.missing -= fresh.length;
    if (this.onfresh) for (const item of fresh) this.onfresh(item[this.place]);
  }

  at(place) {
    return this.items[place];
  }

  // The item at an index; a missing item is requested with the items around it, and undefined if it is unavailable.
  async fetch(place) {
    if (!this.items[place] && place >= 0 && place < this.count) await this.part(place - (place % PART));
    return this.items[place];
  }

  part(start) {
    if (!this.asked.has(start)) {
      const answer = this.load(start).then((found) => this.take(found));
      this.asked.set(start, answer.catch((error) => {
        this.asked.delete(start);
        say(error.message);
      }));
    }
    return this.asked.get(start);
  }

  // All items, without unavailable items.
  async all() {
    for (let place = 0; place < this.count; place += PART) if (this.missing) this.part(place);
    await Promise.all(this.asked.values());
    return this.items.filter(Boolean);
  }
}
