// ---- what a server's log says: the cause, and what each rank had

const ALIKE = 128 * 2 ** 20, WORTH_TELLING = 64 * 2 ** 20;

function showLogged(logged) {
  if (!logged) return;
  const { cause, ranks } = logged;
  if (cause) section("What the log shows", element("p", {}, element("strong", {}, cause.what)), element("p", {}, cause.shown_by), element("p", {}, cause.way_out));
  if (ranks.length < 2) return;
  const rows = alikeTogether(ranks).map(([of, more]) => ({ cells: [
    [of.rank, of.source].filter(Boolean).join(" of ") + (more ? `, ${more} more alike` : ""), of.ends_in || "–",
    size(of.baseline_bytes), size(of.pool_free_bytes), size(of.least_free_bytes), moreThanPredicted(of.gap)] }));
  section("Ranks of the log", table([["Rank", "wrap"], ["Ends after"], ["Free before", NUMBER], ["After the pool", NUMBER], ["Least", NUMBER], ["More than predicted"]], rows));
}

/** Neighbours of one pod that differ by little are told once. */
function alikeTogether(ranks) {
  const groups = [], near = (a, b) => a == null || b == null ? a === b : Math.abs(a - b) <= ALIKE;
  for (const of of ranks) {
    const group = groups.at(-1), first = group && group[0];
    const isLike = first && first.source === of.source && first.ends_in === of.ends_in
      && ["baseline_bytes", "pool_free_bytes", "least_free_bytes"].every(name => near(first[name], of[name]));
    if (isLike) group[1] += 1; else groups.push([of, 0]);
  }
  return groups;
}

function moreThanPredicted(gap) {
  if (!gap) return "another server";
  const told = Object.entries(gap).filter(([cause, bytes]) => cause !== "pool" && bytes >= WORTH_TELLING);
  return told.map(([cause, bytes]) => `${size(bytes)} ${cause}`).join(", ") || "–";
}
