/** Closes a space whose connection is lost and cannot be made again. Then nothing may keep the process alive. */

import { connect } from "mewstream";

const [url, reconnect] = process.argv.slice(2);
const space = await connect(url, { token: "t", reconnect: JSON.parse(reconnect), connectTimeout: 1e8 });
space.on("disconnected", () => setTimeout(() => space.close().then(() => console.log("closed")), 200));
