// A list that the server sends in parts: some items are known, the others are asked for as they are needed.

import { say } from "./dom.js";

const PART = 50; // how many are asked for at once

export class Parts {
  // `known` are items with their place under the name `place`; `load(start)` asks for those from a place on; `onfresh`
  // is called with the place of each that arrived.
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

  // The item of a place, asked for with those around it where it is not known; undefined where it cannot be had.
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

  // All items; those that cannot be had are left out.
  async all() {
    for (let place = 0; place < this.count; place += PART) if (this.missing) this.part(place);
    await Promise.all(this.asked.values());
    return this.items.filter(Boolean);
  }
}
