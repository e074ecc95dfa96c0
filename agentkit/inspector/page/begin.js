// Requests the data of the address while the other files of the page are loading.

import { get, post, takeToken } from "./api.js";
import { read } from "./place.js";

// The prompt of a model call; of a turn with its run. A chosen `agent` composes the prompt of a turn without a run.
export function composed({ run, session, turn, step }, more = {}, agent = null) {
  const base = run ? { run } : { session, turn: turn ?? "last", ...(agent ? { agent } : {}) };
  return post("compose", { base: { ...base, ...(step ? { step } : {}) }, journal: !run, ...more });
}

// A run with its first events; a short run is whole.
export const beginning = (id) => get("run", { id, beginning: "yes" });

export const session = (name, turn) => get("session", turn === undefined ? { name } : { name, turn });

takeToken();
const place = read();
const { hash } = location;
const begun = {
  overview: get("overview"),
  session: place.session === undefined ? null : session(place.session, place.turn),
  run: place.run ? beginning(place.run) : null,
  composed: !place.run && place.session !== undefined ? composed(place) : null,
};
for (const one of Object.values(begun)) one?.catch(() => {});

// The answer to the first request, once; null if the request failed or the address changed: then the caller
// requests the data again.
export async function first(name) {
  const answer = begun[name];
  begun[name] = null;
  return location.hash === hash && answer && answer.catch(() => null);
}
