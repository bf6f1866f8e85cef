/** The door, with a chosen instance in place of "any instance of the service". */
import type { Egress } from "../ports/egress.ts";
import { anyInstance } from "./config.ts";
import { authorityOf, type Instance } from "./instance.ts";

const made = new WeakMap<Instance, { readonly egress: Egress; readonly to: Egress }>();

/**
 * Whoever asks sees the address that was asked for, so that origins compare as if there were one instance.
 * The same for the same instance, as long as the list with it lasts.
 */
export function egressTo(egress: Egress, instance: Instance): Egress {
  const known = made.get(instance);
  if (known?.egress === egress) return known.to;
  const to = createEgressTo(egress, instance);
  made.set(instance, { egress, to });
  return to;
}

function createEgressTo(egress: Egress, instance: Instance): Egress {
  const routes = ["http:", "https:"].map((protocol) => ({
    asked: `${protocol}//${anyInstance}`,
    origin: new URL(`${protocol}//${authorityOf(instance)}`).origin,
  }));
  return {
    ...delegated(egress),
    async request(request) {
      const route = routes.find(({ asked }) => isBelow(request.url, asked));
      if (route === undefined) return egress.request(request);
      const { asked, origin } = route;
      const response = await egress.request({ ...request, url: origin + request.url.slice(asked.length) });
      return isBelow(response.url, origin) ? { ...response, url: request.url } : response;
    },
  };
}

/** Is it an address of this origin? */
function isBelow(url: string, origin: string): boolean {
  if (!url.startsWith(origin)) return false;
  const next = url[origin.length];
  return next === undefined || next === "/" || next === "?" || next === "#";
}

function delegated(egress: Egress): Omit<Egress, "request"> {
  return {
    upgrade: (upgrade) => egress.upgrade(upgrade),
    checkUrl: (url) => egress.checkUrl(url),
    connect: (target) => egress.connect(target),
    connectHttp2: (target) => egress.connectHttp2(target),
    checkTarget: (target) => egress.checkTarget(target),
    close: () => egress.close(),
  };
}
