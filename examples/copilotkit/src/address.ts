import { useCallback, useMemo, useSyncExternalStore } from "react";

/** Three ways to write the same thing; each has a file of its own. */
export const WAYS = ["in-chat", "beside", "headless"] as const;
export type Way = (typeof WAYS)[number];

/** What the address says: after a reload, or from a bookmark, the page is the same. */
export interface Place {
  agent: string;
  thread: string;
  way: Way;
  /** Whether answers are left to the desk (X-Sayso-Hold). */
  hold: boolean;
}

export function usePlace(agents: readonly string[]) {
  const search = useSyncExternalStore(subscribe, () => location.search);
  const place = useMemo(() => read(search, agents), [search, agents]);
  const go = useCallback(
    (change: Partial<Place>) => show({ ...place, ...change }),
    [place],
  );
  return [place, go] as const;
}

function read(search: string, agents: readonly string[]): Place {
  const given = new URLSearchParams(search);
  const [agent, thread, way] = ["agent", "thread", "way"].map((key) => given.get(key));
  return {
    agent: agents.find((slug) => slug === agent) ?? agents[0] ?? "",
    thread: thread || crypto.randomUUID(),
    way: WAYS.find((one) => one === way) ?? "in-chat",
    hold: given.has("hold"),
  };
}

function write({ agent, thread, way, hold }: Place): string {
  return `?${new URLSearchParams({ agent, thread, way, ...(hold && { hold: "1" }) })}`;
}

const CHANGED = "sayso:address";

function show(place: Place): void {
  history.pushState(null, "", write(place));
  dispatchEvent(new Event(CHANGED));
}

/** Put what was chosen by default into the address too. */
export function settle(place: Place): void {
  if (location.search === write(place)) return;
  history.replaceState(null, "", write(place));
  dispatchEvent(new Event(CHANGED));
}

function subscribe(heard: () => void): () => void {
  addEventListener("popstate", heard);
  addEventListener(CHANGED, heard);
  return () => {
    removeEventListener("popstate", heard);
    removeEventListener(CHANGED, heard);
  };
}
