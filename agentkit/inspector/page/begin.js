// What the address names is asked for while the other files of the page are on their way.

import { get, takeToken } from "./api.js";
import { read } from "./place.js";

export const session = (name, turn) => get("session", turn === undefined ? { name } : { name, turn });

takeToken();
const place = read();
const begun = {
  overview: get("overview"),
  session: place.session === undefined ? null : session(place.session, place.turn),
};
for (const one of Object.values(begun)) one?.catch(() => {});

// The answer to what was asked for at first, once; null where that failed, and whoever needs it asks again.
export async function first(name) {
  const answer = begun[name];
  begun[name] = null;
  return answer && answer.catch(() => null);
}
