/** The door, with a chosen instance in place of "any instance of the service". */
import type { Egress } from "../ports/egress.ts";
import { anyInstance } from "./config.ts";
import { authorityOf, type Instance } from "./instance.ts";

/** Whoever asks sees the address that was asked for, so that origins compare as if there were one instance. */
export function egressTo(egress: Egress, instance: Instance): Egress {
  return {
    ...delegated(egress),
    async request(request) {
      const asked = new URL(request.url);
      if (asked.hostname !== anyInstance) return egress.request(request);
      const origin = `${asked.protocol}//${authorityOf(instance)}`;
      const response = await egress.request({ ...request, url: origin + request.url.slice(asked.origin.length) });
      const isThere = new URL(response.url).origin === new URL(origin).origin;
      return isThere ? { ...response, url: request.url } : response;
    },
  };
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
