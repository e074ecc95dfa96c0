// The place of the address: a run, a turn of a session or a new run, and a tab.

export const TABS = [
  ["layers", "Layers"],
  ["timeline", "Timeline"],
  ["changes", "Changes"],
  ["payload", "Payload"],
  ["recall", "Recall"],
  ["play", "Play"],
];

export function read() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const steps = path.split("/").map((step) => {
    try {
      return decodeURIComponent(step);
    } catch {
      return step;
    }
  });
  const more = Object.fromEntries(new URLSearchParams(query || ""));
  const place = { tab: TABS.some(([name]) => name === more.tab) ? more.tab : undefined };
  if (more.step) place.step = Number(more.step) || undefined;
  if (steps[0] === "run") place.run = steps[1];
  else if (steps[0] === "new") place.create = steps[1] || true;
  else if (steps[0] === "agent") place.agent = steps[1] || "";
  else if (steps[0] === "evaluation") place.evaluation = steps.slice(1, 3);
  else if (steps[0] === "compare") place.compare = [steps[1] || "", steps[2] || ""];
  else if (steps[0] === "session") {
    place.session = steps[1];
    if (steps[2] !== undefined && /^\d+$/.test(steps[2])) place.turn = Number(steps[2]);
    if (more.run) place.run = more.run;
  }
  return place;
}

export function address(place) {
  const query = new URLSearchParams();
  let path = "#/";
  if (place.create) path = place.create === true ? "#/new" : `#/new/${encodeURIComponent(place.create)}`;
  else if (place.agent !== undefined) path = `#/agent/${encodeURIComponent(place.agent)}`;
  else if (place.evaluation) path = `#/evaluation/${place.evaluation.map(encodeURIComponent).join("/")}`;
  else if (place.compare) path = `#/compare/${place.compare.map(encodeURIComponent).join("/")}`;
  else if (place.session !== undefined) {
    path = `#/session/${encodeURIComponent(place.session)}`;
    if (place.turn !== undefined) path += `/${place.turn}`;
    if (place.run) query.set("run", place.run);
  } else if (place.run) path = `#/run/${encodeURIComponent(place.run)}`;
  if (place.tab) query.set("tab", place.tab);
  if (place.step) query.set("step", place.step);
  return query.size ? `${path}?${query}` : path;
}

// The user of a session that is listed as `user/name`; empty for a session without a user.
export const ownerOf = (session) => (session?.includes("/") ? session.slice(0, session.lastIndexOf("/")) : "");
