import type { TranslationBundle } from '@jupyterlab/translation';
import { Signal, type ISignal } from '@lumino/signaling';
import { Widget } from '@lumino/widgets';

import { NoticeView } from '../panel/notice';
import { serverNotice, type Notice } from '../panel/panelMessages';
import type { Monitor } from '../stream/monitor';
import type { CourseServer } from '../stream/server';
import type { Timers } from '../timers';
import { setAttribute, Text } from '../ui/dom';
import { gpuNumber } from '../ui/format';
import { gpuIcon } from '../ui/icon';
import { unitsChanged } from '../ui/units';
import type { ReceivedMessage } from '../wire';
import { blankOf, type Blank } from './blank';
import { BlankView } from './blankView';
import type { Frame, ShownGpu } from './chart';
import { Chooser } from './chooser';
import { readColours, type Colours } from './colours';
import type { Moments } from './course';
import { csv, fileName } from './csv';
import { Grid } from './grid';
import { keyAction } from './keys';
import { Legend } from './legend';
import { Loader } from './loader';
import { METRICS } from './metrics';
import { after } from './navigation';
import { Pace } from './pace';
import { Passing } from './passing';
import { save } from './save';
import { withGpu, withMetric, withOnly, type DashboardState, type Part } from './state';
import { Toolbar } from './toolbar';

/** Up to so many GPUs are drawn as finely and as often as it makes sense; of more, what can be told apart is less. */
const FEW = 4;
/** Steps of a chart: a pixel or two each, and some more of many GPUs. */
const POINTS = [400, 250] as const;
/** Rows of a table: an hour by seconds, or minutes at full rate. */
const ROWS = 4000;
/** So long it is said that a table could not be made. */
const UNSAVED_MS = 10_000;

/** What a dashboard works with. */
export interface DashboardPorts {
  readonly trans: TranslationBundle;
  readonly monitor: Monitor;
  readonly server: CourseServer;
  readonly timers: Timers;
}

/** Every metric of every GPU over time, in the main area. It looks, and so has work done, only while it can be seen. */
export class GpuDashboard extends Widget {
  private readonly trans: TranslationBundle;
  private readonly monitor: Monitor;
  private readonly loader: Loader;
  private readonly pace: Pace;
  /** Why the table could not be made. */
  private readonly unsaved: Passing;
  private readonly recording = new Text('recording', 'div');
  private readonly notice: NoticeView;
  private readonly blank: BlankView;
  private readonly toolbar: Toolbar;
  private readonly chooser: Chooser;
  private readonly legend: Legend;
  private readonly grid: Grid;
  private readonly moments: Moments = { times: [], places: [] };
  private colours: Colours | null = null;
  private still: Part | null = null;
  private looking = false;
  /** How many steps were asked for. */
  private asked: number = POINTS[0];
  private readonly stateChanges = new Signal<this, void>(this);

  constructor(
    private readonly ports: DashboardPorts,
    private shown: DashboardState
  ) {
    super();
    const { trans, monitor, server, timers } = ports;
    this.trans = trans;
    this.monitor = monitor;
    this.id = 'jp-gpuwidget-dashboard';
    this.addClass('jp-gpuwidget-dashboard');
    this.title.icon = gpuIcon;
    this.title.label = trans.__('GPU Dashboard');
    this.title.closable = true;
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', trans.__('GPU Dashboard'));
    this.node.tabIndex = -1;
    this.loader = new Loader(server, timers);
    this.pace = new Pace(timers, () => {
      this.draw();
    });
    this.unsaved = new Passing(timers, UNSAVED_MS, () => {
      this.update();
    });
    this.notice = new NoticeView(trans, () => undefined);
    this.blank = new BlankView(trans, what => {
      this.become(what === 'metrics' ? { ...this.shown, metrics: METRICS } : { ...this.shown, hidden: [] });
      this.write(); // The button is gone with it, and the keyboard goes to the charts.
      this.takeKeyboard();
    });
    this.chooser = new Chooser(
      trans,
      (name, on) => {
        this.become(withMetric(this.shown, name, on));
      },
      all => {
        this.become({ ...this.shown, metrics: all ? METRICS : [] });
      }
    );
    this.toolbar = new Toolbar(
      {
        trans,
        range: range => {
          this.still = null;
          this.become({ ...this.shown, range });
        },
        live: live => {
          this.stand(live ? null : this.part());
        },
        save: () => {
          void this.save();
        }
      },
      this.chooser
    );
    this.grid = new Grid({
      trans,
      colours: () => (this.colours ??= readColours(this.node)),
      key: this.id,
      zoom: part => {
        this.stand(part);
      },
      reset: () => {
        this.stand(null);
      }
    });
    this.legend = new Legend({
      trans,
      toggled: uuid => {
        this.become(withGpu(this.shown, uuid, this.shown.hidden.includes(uuid)));
      },
      only: uuid => {
        const uuids = monitor.model.sample?.gpus.map(gpu => gpu.uuid) ?? [];
        this.become(withOnly(this.shown, uuid, uuids));
      },
      focus: uuid => {
        this.grid.focus(uuid);
      }
    });
    this.grid.node.hidden = true;
    const { scroll } = this.grid;
    scroll.tabIndex = 0;
    scroll.setAttribute('role', 'group');
    scroll.setAttribute(
      'aria-label',
      trans.__(
        'Charts. Keys: arrows move along, plus and minus zoom, Shift with arrows reads off, Escape goes back to live'
      )
    );
    scroll.addEventListener('keydown', this.pressed);
    this.node.append(
      this.toolbar.node,
      this.recording.node,
      this.notice.node,
      this.legend.node,
      this.blank.node,
      this.grid.node
    );
    monitor.changed.connect(this.update, this);
    monitor.received.connect(this.take, this);
    this.loader.changed.connect(this.loaded, this);
    unitsChanged.connect(this.loaded, this);
    document.addEventListener('visibilitychange', this.look);
    this.grid.choose(this.shown.metrics);
    this.chooser.update(this.shown.metrics);
    this.toolbar.update(this.shown, null);
  }

  /** What is shown, to be kept with the workspace. */
  get state(): DashboardState {
    return this.shown;
  }

  /** Emitted when that is another. */
  get stateChanged(): ISignal<this, void> {
    return this.stateChanges;
  }

  /** The theme has changed. */
  recolour(): void {
    this.colours = null;
    this.grid.recolour();
  }

  override dispose(): void {
    if (this.isDisposed) {
      return;
    }
    document.removeEventListener('visibilitychange', this.look);
    this.monitor.changed.disconnect(this.update, this);
    this.monitor.received.disconnect(this.take, this);
    unitsChanged.disconnect(this.loaded, this);
    this.rest();
    this.grid.dispose();
    super.dispose();
  }

  protected override onAfterShow(): void {
    this.look();
  }

  protected override onAfterAttach(): void {
    this.look();
  }

  protected override onAfterHide(): void {
    this.look();
  }

  protected override onBeforeDetach(): void {
    this.rest();
  }

  /** Closed it is gone: the next one begins with what this one showed. */
  protected override onCloseRequest(): void {
    this.dispose();
  }

  protected override onActivateRequest(): void {
    this.takeKeyboard();
  }

  protected override onUpdateRequest(): void {
    if (!this.looking) {
      return;
    }
    this.write();
    this.pace.ask();
  }

  /** Write everything but the charts. */
  private write(): void {
    const { sample } = this.monitor.model;
    const recording = sample?.origin.recording ?? null;
    this.recording.set(recording ?? '');
    this.recording.node.hidden = recording === null;
    const server = this.serverNotice();
    const said = server ?? this.said();
    const blank = this.blankOf(said);
    // One sentence is said once.
    const notice = said?.text === blank?.text ? null : said;
    this.notice.show(this.unsaved.text === null ? notice : { text: this.unsaved.text });
    this.blank.show(blank);
    this.showCharts(blank === null);
    this.toolbar.node.hidden = sample?.gpus.length === 0;
    this.toolbar.empty = blank !== null;
    setAttribute(this.node, 'data-link', server !== null && this.still === null ? 'lost' : '');
    this.legend.update(sample, this.shown.hidden);
  }

  /** Have it on the charts, or here until there are some. */
  private takeKeyboard(): void {
    (this.grid.node.hidden ? this.node : this.grid.scroll).focus();
  }

  /** Show the charts or not, without the keyboard being lost with what goes. */
  private showCharts(shown: boolean): void {
    const { node, scroll } = this.grid;
    if (node.hidden !== shown) {
      return;
    }
    const { activeElement } = document;
    const [here, there] = shown
      ? [activeElement === this.node, scroll]
      : [node.contains(activeElement), this.node];
    node.hidden = !shown;
    if (here) {
      there.focus({ preventScroll: true });
    }
  }

  private blankOf(notice: Notice | null): Blank | null {
    const { sample } = this.monitor.model;
    return blankOf(this.trans, {
      gpus: sample?.gpus.length ?? null,
      reason: sample?.origin.reason ?? null,
      chosen: this.gpus().length,
      metrics: this.shown.metrics.length,
      read: this.loader.course !== null,
      notice
    });
  }

  private readonly look = (): void => {
    const looking = this.isVisible && document.visibilityState === 'visible';
    if (looking === this.looking) {
      return;
    }
    if (!looking) {
      this.rest();
      return;
    }
    this.looking = true;
    this.monitor.follow(this, true);
    if (this.monitor.link === 'open' || this.still !== null) {
      this.load(); // Otherwise the stream's first message does it: what was read before it, the server has by then.
    }
    this.update();
  };

  private rest(): void {
    this.looking = false;
    this.monitor.follow(this, false);
    this.loader.stop();
    this.pace.stop();
    this.unsaved.say(null);
  }

  private take(_: unknown, message: ReceivedMessage): void {
    if (!this.looking) {
      return;
    }
    if (message.type === 'sample') {
      if (this.points !== this.asked) {
        this.load(); // How many GPUs there are is known now.
      }
      this.loader.take(message.sample);
      this.pace.ask();
    } else if (message.type === 'hello' && this.still === null) {
      // The stream begins anew: what was read meanwhile, the server has.
      this.load();
    }
  }

  private loaded(): void {
    this.pace.now();
    this.update();
  }

  private become(state: DashboardState): void {
    const { range, metrics } = this.shown;
    this.shown = state;
    const more = state.range !== range || state.metrics.some(name => !metrics.includes(name));
    this.grid.choose(state.metrics);
    this.chooser.update(state.metrics);
    this.toolbar.update(state, this.still);
    this.stateChanges.emit();
    if (more || this.points !== this.asked) {
      this.load();
    }
    this.update();
    this.pace.now();
  }

  /** Show a part that stands still, or follow what happens now. */
  private stand(part: Part | null): void {
    if (part === null && this.still === null) {
      return;
    }
    this.still = part;
    this.toolbar.update(this.shown, part);
    this.load();
    this.pace.now();
  }

  private load(): void {
    if (this.looking && this.shown.metrics.length > 0) {
      const span = this.still ?? { seconds: this.shown.range };
      this.asked = this.points;
      this.loader.load({ span, metrics: this.shown.metrics, points: this.asked });
    }
  }

  private part(): Part {
    const to = Math.max(
      this.loader.course?.newest ?? -Infinity,
      this.monitor.model.sample?.time ?? -Infinity
    );
    const end = Number.isFinite(to) ? to : Date.now() / 1000;
    return this.still ?? { from: end - this.shown.range, to: end };
  }

  private get points(): number {
    return POINTS[this.many ? 1 : 0];
  }

  private get many(): boolean {
    const { gpus = [] } = this.monitor.model.sample ?? {};
    return gpus.filter(({ uuid }) => !this.shown.hidden.includes(uuid)).length > FEW;
  }

  private gpus(): ShownGpu[] {
    const { gpus = [], readings = [] } = this.monitor.model.sample ?? {};
    return gpus.flatMap((gpu, place) => {
      const reading = readings[place];
      const shown = reading !== undefined && !this.shown.hidden.includes(gpu.uuid);
      return shown ? [{ gpu, reading, place, number: gpuNumber(gpu) }] : [];
    });
  }

  private draw(): void {
    const { course } = this.loader;
    if (!this.looking || course === null) {
      return;
    }
    const part = this.part();
    course.moments(part.from, this.monitor.model.server?.interval ?? 0, this.moments);
    const frame: Frame = {
      course,
      moments: this.moments,
      part,
      gpus: this.gpus(),
      live: this.still === null
    };
    this.grid.draw(frame);
    this.pace.seconds = this.still === null ? this.shown.range : Infinity;
    this.pace.calm = this.many;
  }

  /** How it stands with the server; null while samples come, or the first is waited for. */
  private serverNotice(): Notice | null {
    const { link, sampled, model, quietFor } = this.monitor;
    const known = model.sample !== null;
    const waits = !known && quietFor === null && (link === 'open' || link === 'opening');
    return waits ? null : serverNotice(this.trans, { link, quiet: quietFor, sampled, known });
  }

  private said(): Notice | null {
    if (this.loader.failure !== null) {
      return { text: this.trans.__('The past can’t be had now: %1. Trying again.', this.loader.failure) };
    }
    const reason = this.monitor.model.sample?.origin.reason ?? null;
    return reason === null ? null : { text: reason };
  }

  private readonly pressed = (event: KeyboardEvent): void => {
    const action = keyAction(event);
    if (action === null) {
      return;
    }
    event.preventDefault();
    const part = this.part();
    const at = this.grid.pointed;
    switch (action.kind) {
      case 'reset':
        this.grid.point(null);
        this.stand(null);
        break;
      case 'move':
      case 'zoom':
        this.stand(after(action, part, this.monitor.model.sample?.time ?? part.to, at));
        break;
      case 'point': {
        const by = action.share * (part.to - part.from);
        this.grid.point(Math.min(part.to, Math.max(part.from, (at ?? part.to) + by)));
        break;
      }
    }
  };

  private async save(): Promise<void> {
    const { from, to } = this.part();
    const metrics = this.shown.metrics;
    this.unsaved.say(null);
    this.toolbar.saving(true);
    try {
      const course = await this.ports.server.course({
        part: { since: from, until: to },
        metrics,
        points: ROWS
      });
      const named = this.gpus().map(({ gpu, number }) => ({
        uuid: gpu.uuid,
        name: `${this.trans.__('GPU %1', number)} (${gpu.name})`
      }));
      const recording = (this.monitor.model.sample?.origin.recording ?? null) !== null;
      save(fileName(to, recording), csv(course, named, metrics));
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      this.unsaved.say(this.trans.__('The table could not be made: %1', reason));
    } finally {
      this.toolbar.saving(false);
    }
  }
}
