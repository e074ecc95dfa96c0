// What the address names is asked for while the other files of the page are on their way.

import { get, post, takeToken } from "./api.js";
import { read } from "./place.js";

// The prompt of a model call, with its run. `agent` composes what has no run, where somebody chose one.
export function composed({ run, session, turn, step }, more = {}, agent = null) {
  const base = run ? { run } : { session, turn: turn ?? "last", ...(agent ? { agent } : {}) };
  return post("compose", { base: { ...base, ...(step ? { step } : {}) }, journal: true, ...more });
}

export const session = (name, turn) => get("session", turn === undefined ? { name } : { name, turn });

takeToken();
const place = read();
const { hash } = location;
const begun = {
  overview: get("overview"),
  session: place.session === undefined ? null : session(place.session, place.turn),
  composed: place.run || place.session !== undefined ? composed(place) : null,
};
for (const one of Object.values(begun)) one?.catch(() => {});

// The answer to what was asked for at first, once; null where that failed or somebody went elsewhere, and
// whoever needs it asks again.
export async function first(name) {
  const answer = begun[name];
  begun[name] = null;
  return location.hash === hash && answer && answer.catch(() => null);
}
