/** The desk this page talks to, and by whose right. */

export interface Access {
  /** Where the desk is; empty for the site the page itself comes from. */
  url: string;
  /** An API token; empty for the session of that site. */
  token: string;
}

/** By the session of the site the page itself comes from. */
export const SESSION: Access = { url: "", token: "" };

export interface Agent {
  slug: string;
  description: string;
}

export interface Desk {
  url: string;
  headers: Record<string, string>;
  agents: Agent[];
}

/** Ask the desk which agents there are. Throws an Error in words for people. */
export async function reach({ url, token }: Access): Promise<Desk> {
  const headers: Record<string, string> = token
    ? { Authorization: `Bearer ${token}` }
    : {};
  const info = await ask(`${url}/copilotkit/info`, headers);
  if (!token) headers["X-CSRFToken"] = info.csrfToken ?? "";
  const agents = Object.entries(info.agents).map(([slug, { description }]) => ({
    slug,
    description,
  }));
  return { url, headers, agents };
}

interface Info {
  agents: Record<string, { description: string }>;
  csrfToken?: string;
}

async function ask(address: string, headers: HeadersInit): Promise<Info> {
  let response: Response;
  try {
    response = await fetch(address, { headers });
  } catch {
    throw new Error(
      "The desk does not answer. Is it running, and does SAYSO_CORS_ORIGINS name " +
        `${location.origin}?`,
    );
  }
  const answer = await response.json().catch(() => null);
  if (response.ok && answer?.agents) return answer;
  throw new Error(answer?.error?.message ?? "There is no desk at this address.");
}

// A token is kept by this tab until it is closed. It never stands in an address: those are
// copied, logged and sent along.
const PLACE = "sayso-access";

export function remembered(): Access | null {
  const kept = sessionStorage.getItem(PLACE);
  return kept ? JSON.parse(kept) : null;
}

export function remember(access: Access): void {
  sessionStorage.setItem(PLACE, JSON.stringify(access));
}

export function forget(): void {
  sessionStorage.removeItem(PLACE);
}
